//! What an effect returned, and how an effect reports that it failed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What the bytes of an [`Outcome`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Kind {
    /// JSON text, as the caller wrote it.
    Json,
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

impl Kind {
    /// `json`, `text` or `binary`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Json => "json",
            Kind::Text => "text",
            Kind::Binary => "binary",
        }
    }
}

/// The longest body that lies in the [`Outcome`] itself, in bytes.
pub(crate) const SMALL_BYTES_MAX: usize = 112;

/// The bytes of a small body. Aligned, so that they move as the words they are kept as.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(crate) struct Few(pub [u8; SMALL_BYTES_MAX]);

/// What an effect returned: bytes, what they are, and whether the effect called it an error.
///
/// Cloning shares the bytes, or copies them where they are few. A repeat of the action gets exactly
/// these bytes back (P6).
#[derive(Clone)]
pub struct Outcome(Inner);

/// A few bytes are copied rather than shared: readers of one body then write to no memory in common.
#[derive(Clone)]
enum Inner {
    Small { form: Form, len: u8, bytes: Few },
    Shared { form: Form, bytes: Arc<[u8]> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    kind: Kind,
    error: bool,
}

impl Outcome {
    /// JSON text, kept as it is written. It is not checked.
    pub fn json(text: impl AsRef<str>) -> Self {
        Outcome::new(Kind::Json, false, text.as_ref().as_bytes())
    }

    /// Any serializable value, stored as its canonical JSON.
    ///
    /// # Errors
    /// `BadInput` where the value has no JSON form (NaN, duplicate names). Nothing is written.
    pub fn value<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        Ok(Outcome::json(crate::canonical::Value::from_serialize(value)?.to_canonical()))
    }

    /// Text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Outcome::new(Kind::Text, false, text.as_ref().as_bytes())
    }

    /// Bytes.
    pub fn binary(bytes: impl AsRef<[u8]>) -> Self {
        Outcome::new(Kind::Binary, false, bytes.as_ref())
    }

    /// The same outcome with the error flag set: the effect happened and its answer was an error.
    pub fn as_error(mut self) -> Self {
        let (Inner::Small { form, .. } | Inner::Shared { form, .. }) = &mut self.0;
        form.error = true;
        self
    }

    pub(crate) fn new(kind: Kind, error: bool, body: &[u8]) -> Self {
        let mut bytes = Few([0; SMALL_BYTES_MAX]);
        match u8::try_from(body.len()).ok().zip(bytes.0.get_mut(..body.len())) {
            Some((len, place)) => {
                place.copy_from_slice(body);
                Outcome::small(kind, error, len, bytes)
            }
            None => Outcome(Inner::Shared { form: Form { kind, error }, bytes: Arc::from(body) }),
        }
    }

    /// A small body: so many of the bytes.
    #[inline(always)]
    pub(crate) fn small(kind: Kind, error: bool, len: u8, bytes: Few) -> Self {
        Outcome(Inner::Small { form: Form { kind, error }, len, bytes })
    }

    /// The length and bytes of a small body, zeros behind it.
    pub(crate) fn as_small(&self) -> Option<(u8, &Few)> {
        match &self.0 {
            Inner::Small { len, bytes, .. } => Some((*len, bytes)),
            Inner::Shared { .. } => None,
        }
    }

    #[inline]
    fn form(&self) -> Form {
        let (Inner::Small { form, .. } | Inner::Shared { form, .. }) = &self.0;
        *form
    }

    /// What the bytes are.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.form().kind
    }

    /// Whether the effect called this outcome an error.
    #[inline]
    pub fn is_error(&self) -> bool {
        self.form().error
    }

    /// The bytes.
    #[inline]
    pub fn body(&self) -> &[u8] {
        match &self.0 {
            Inner::Small { len, bytes, .. } => bytes.0.get(..usize::from(*len)).unwrap_or(&bytes.0),
            Inner::Shared { bytes, .. } => bytes,
        }
    }

    /// The bytes as text, where they are UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.body()).ok()
    }
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        (self.form(), self.body()) == (other.form(), other.body())
    }
}

impl Eq for Outcome {}

impl fmt::Debug for Outcome {
    /// Length and kind only: a body may hold what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = if self.is_error() { ", error" } else { "" };
        write!(f, "Outcome({}{error}, {} bytes)", self.kind().name(), self.body().len())
    }
}

impl AsRef<[u8]> for Outcome {
    fn as_ref(&self) -> &[u8] {
        self.body()
    }
}

impl From<()> for Outcome {
    /// `()` is the JSON text `null`.
    fn from((): ()) -> Self {
        Outcome::json("null")
    }
}

impl From<&str> for Outcome {
    fn from(text: &str) -> Self {
        Outcome::text(text)
    }
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Outcome::text(text)
    }
}

impl From<Vec<u8>> for Outcome {
    fn from(bytes: Vec<u8>) -> Self {
        Outcome::binary(bytes)
    }
}

/// How an effect failed. Whoever writes the effect says what it knows; what nobody knows is
/// [`EffectError::unknown`], and every other error converts into that.
pub struct EffectError(Box<Failure>);

/// On the heap: an effect's result stays small.
struct Failure {
    class: Class,
    outcome: Outcome,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What an [`EffectError`] says about the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The effect certainly did not happen. The claim is released; the action may be tried again.
    NotApplied,
    /// The effect gave its last answer, and it is a failure. Stored and replayed.
    Final,
    /// It may have happened. The claim becomes uncertain.
    Unknown,
}

impl EffectError {
    /// The effect certainly did not happen: the claim is released and the key is free again.
    pub fn not_applied(why: impl fmt::Display) -> Self {
        EffectError::of(Class::NotApplied, Outcome::text(why.to_string()).as_error())
    }

    /// A final failure, stored with this outcome and given to every repeat.
    pub fn final_failure(outcome: impl Into<Outcome>) -> Self {
        EffectError::of(Class::Final, outcome.into().as_error())
    }

    /// It may or may not have happened: the claim becomes uncertain.
    pub fn unknown(why: impl fmt::Display) -> Self {
        EffectError::of(Class::Unknown, Outcome::text(why.to_string()).as_error())
    }

    fn of(class: Class, outcome: Outcome) -> Self {
        EffectError(Box::new(Failure { class, outcome, source: None }))
    }

    /// What the error says about the world.
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// What the effect had to say.
    pub fn outcome(&self) -> &Outcome {
        &self.0.outcome
    }

    /// The error this one was made from, if any.
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }
}

impl fmt::Display for EffectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.0.class {
            Class::NotApplied => "not applied",
            Class::Final => "final",
            Class::Unknown => "unknown",
        };
        write!(f, "{class}: {}", self.0.outcome.as_str().unwrap_or("(binary)"))
    }
}

impl fmt::Debug for EffectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EffectError({self})")
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for EffectError {
    /// Any error is unknown: nobody classified it, so the effect may have happened.
    fn from(error: E) -> Self {
        let mut unknown = EffectError::unknown(&error);
        unknown.0.source = Some(Box::new(error));
        unknown
    }
}

/// An outcome as the ledger holds it for a repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// The first run's outcome, byte for byte.
    Kept(Outcome),
    /// The action happened; its body was over the size limit, its retention has passed, or whoever resolved the
    /// claim gave none.
    NotKept {
        /// What the body was.
        kind: Kind,
        /// Whether the effect called its outcome an error.
        error: bool,
        /// How long the body was, in bytes.
        bytes: u64,
    },
}

impl Stored {
    /// The outcome, where its body is kept.
    #[inline]
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Stored::Kept(outcome) => Some(outcome),
            Stored::NotKept { .. } => None,
        }
    }

    /// Whether the effect called its outcome an error.
    pub fn is_error(&self) -> bool {
        match self {
            Stored::Kept(outcome) => outcome.is_error(),
            Stored::NotKept { error, .. } => *error,
        }
    }

    /// What the body is or was.
    pub fn kind(&self) -> Kind {
        match self {
            Stored::Kept(outcome) => outcome.kind(),
            Stored::NotKept { kind, .. } => *kind,
        }
    }

    /// The outcome, or an error that says it is not kept.
    ///
    /// # Errors
    /// `BadInput` where the body is not kept.
    pub fn into_outcome(self) -> Result<Outcome> {
        match self {
            Stored::Kept(outcome) => Ok(outcome),
            Stored::NotKept { bytes, .. } => {
                Err(Error::bad_input(format!("the outcome ({bytes} bytes) is not kept; the action did happen")))
            }
        }
    }
}
