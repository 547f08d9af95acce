//! Keys: which action is meant, and what to call it downstream.
//!
//! A [`Key`] is SHA-256 over a domain, a version, the kind of key and length-prefixed parts (see
//! `key/digest.rs`), so no two lists of parts collide, whatever bytes they hold. A [`Scope`] is
//! always part of it and never implied. Text is taken byte for byte: nothing is trimmed, folded or
//! normalised. This module does no I/O and reads no clock.

mod digest;
mod fingerprint;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use self::digest::{Parts, digest_type};
pub use self::fingerprint::{ArgsDigest, Fingerprint, Selection};
use crate::canonical::shown;
use crate::error::{Error, Result};

/// Whose actions these are: a tenant, an agent, and where wanted one run. The same action in
/// another scope is another action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Empty for the global scope only.
    name: Arc<str>,
    /// Never empty.
    run: Option<Arc<str>>,
}

impl Scope {
    /// The longest scope, run, action, tool or label, in bytes.
    pub const NAME_BYTES_MAX: usize = 512;

    /// The scope of this name, such as `acme/support`.
    ///
    /// # Errors
    /// `BadInput` for an empty name, or one longer than [`Scope::NAME_BYTES_MAX`].
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::bad_input("the scope is empty")
                .next("name the tenant or agent, or say Scope::global() if there is only one"));
        }
        check_name("scope", name)?;
        Ok(Scope { name: name.into(), run: None })
    }

    /// The one scope without a name, for a ledger that serves nobody else.
    pub fn global() -> Self {
        Scope { name: "".into(), run: None }
    }

    /// One run inside this scope: its actions are distinct from those of every other run, and from
    /// those of the scope itself.
    ///
    /// # Errors
    /// `BadInput` for an empty run, one longer than [`Scope::NAME_BYTES_MAX`], or a scope that already
    /// names a run.
    pub fn run(&self, run: impl AsRef<str>) -> Result<Self> {
        let run = run.as_ref();
        check_name("run", run)?;
        if let Some(old) = &self.run {
            return Err(Error::bad_input(format!("the scope already names the run {}", shown(old)))
                .next("make the scope of a run from the scope without one"));
        }
        Ok(Scope { name: Arc::clone(&self.name), run: Some(run.into()) })
    }

    /// The name; empty for the global scope.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The run, where the scope names one.
    pub fn run_name(&self) -> Option<&str> {
        self.run.as_deref()
    }
}

/// The 32-byte name of one intended action inside a scope.
///
/// Two keys are the same when their digests are. A key that was made here also carries scope and
/// action for people to read; a key from bytes or text does not.
#[derive(Clone)]
pub struct Key {
    digest: [u8; 32],
    name: Option<Arc<Name>>,
}

struct Name {
    scope: Scope,
    action: Box<str>,
}

digest_type!(Key, "key");

impl Key {
    /// The longest part of a business key, and the longest call id, in bytes.
    pub const PART_BYTES_MAX: usize = 64 * 1024;

    /// A business key: the action and what it acts on, such as `refund` and an order id. No parts
    /// means the action happens once in the whole scope.
    ///
    /// # Errors
    /// `BadInput` for an empty action, one longer than [`Scope::NAME_BYTES_MAX`], and an empty part or one
    /// longer than [`Key::PART_BYTES_MAX`].
    pub fn action<P: AsRef<[u8]>>(scope: &Scope, action: &str, parts: impl IntoIterator<Item = P>) -> Result<Self> {
        check_name("action", action)?;
        let mut digest = key_parts("action", scope);
        digest.part(action.as_bytes());
        for part in parts {
            check_part("key part", part.as_ref())?;
            digest.part(part.as_ref());
        }
        Ok(Key::made(digest, scope, action))
    }

    /// One tool call in one run. The call id alone is never a whole key: some models repeat ids,
    /// and a lost transcript changes them. The fingerprint tells such calls apart.
    ///
    /// # Errors
    /// `BadInput` for an empty run or call id, one that is too long ([`Scope::NAME_BYTES_MAX`],
    /// [`Key::PART_BYTES_MAX`]), or a scope that already names a run.
    pub fn call(scope: &Scope, run: &str, call_id: &str, fingerprint: &Fingerprint) -> Result<Self> {
        let scope = scope.run(run)?;
        check_part("call id", call_id.as_bytes())?;
        let mut digest = key_parts("call", &scope);
        digest.part(call_id.as_bytes());
        digest.part(fingerprint.digest());
        Ok(Key::made(digest, &scope, "call"))
    }

    /// A tool and the identity fields of its arguments, or all of them (see [`Selection::tool`]).
    /// With a plain scope the action happens once whichever run asks; with [`Scope::run`], once in
    /// that run.
    ///
    /// # Errors
    /// `BadInput` for an empty tool name, one longer than [`Scope::NAME_BYTES_MAX`], and a selection made
    /// by hand.
    pub fn tool(scope: &Scope, tool: &str, selection: &Selection) -> Result<Self> {
        check_name("tool", tool)?;
        let mut digest = key_parts("tool", scope);
        digest.part(tool.as_bytes());
        digest.part(selection.identity()?);
        Ok(Key::made(digest, scope, tool))
    }

    /// The key with these bytes, without names.
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Key { digest, name: None }
    }

    /// The same key with names for people. They are not part of it.
    pub fn named(self, scope: &Scope, action: &str) -> Self {
        let name = Name { scope: scope.clone(), action: action.into() };
        Key { digest: self.digest, name: Some(Arc::new(name)) }
    }

    /// The 32 bytes.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The name of the scope, where it is known; empty for the global scope.
    pub fn scope(&self) -> Option<&str> {
        self.name.as_deref().map(|name| name.scope.as_str())
    }

    /// The run, where the key is known to belong to one.
    pub fn run(&self) -> Option<&str> {
        self.name.as_deref().and_then(|name| name.scope.run_name())
    }

    /// The action or tool, where it is known. For [`Key::call`] it is `call`.
    pub fn action_name(&self) -> Option<&str> {
        self.name.as_deref().map(|name| &*name.action)
    }

    /// The name to give a provider for one effect of this action. It is the same on every attempt
    /// and different for every label; the empty label is a label like any other.
    pub fn downstream(&self, label: &str) -> Downstream {
        let mut digest = Parts::new("onceledger/downstream", "effect");
        digest.part(&self.digest);
        digest.part(label.as_bytes());
        Downstream(digest.finish())
    }

    fn made(digest: Parts, scope: &Scope, action: &str) -> Self {
        Key::from_digest(digest.finish()).named(scope, action)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.digest.cmp(&other.digest)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_deref() {
            Some(Name { scope, action }) => {
                write!(f, "Key({self:.16}, {:?}, {action:?})", scope.as_str())
            }
            None => write!(f, "Key({self:.16})"),
        }
    }
}

/// The name of one effect for the provider that runs it, in the shapes that providers take.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Downstream([u8; 32]);

impl Downstream {
    /// 64 hex digits.
    pub fn as_hex(&self) -> String {
        crate::encoding::hex(&self.0)
    }

    /// 43 characters of base64url, without padding.
    pub fn as_base64url(&self) -> String {
        crate::encoding::base64url(&self.0)
    }

    /// A UUID of version 8 from the first 16 bytes: 122 bits of the digest, lower case.
    pub fn as_uuid(&self) -> String {
        let mut first = [0; 16];
        first.copy_from_slice(&self.0[..16]); // 16 of 32
        crate::encoding::uuid8(first)
    }

    /// The 32 bytes.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Downstream {
    /// 64 hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_hex())
    }
}

impl fmt::Debug for Downstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Downstream({self:.16})")
    }
}

/// Scope and run begin every key. An empty text stands for "global" and "no run": neither can be
/// empty otherwise.
fn key_parts(kind: &str, scope: &Scope) -> Parts {
    let mut parts = Parts::new("onceledger/key", kind);
    parts.part(scope.name.as_bytes());
    parts.part(scope.run_name().unwrap_or("").as_bytes());
    parts
}

fn check_name(what: &str, name: &str) -> Result<()> {
    check_length(what, name.len(), Scope::NAME_BYTES_MAX)
}

fn check_part(what: &str, part: &[u8]) -> Result<()> {
    check_length(what, part.len(), Key::PART_BYTES_MAX)
}

fn check_length(what: &str, bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes == 0 {
        return Err(Error::bad_input(format!("the {what} is empty"))
            .next("give one: what is missing must not look like what is there"));
    }
    if bytes > bytes_max {
        return Err(Error::bad_input(format!("the {what} has {bytes} bytes, more than {bytes_max}"))
            .next("use its SHA-256 instead"));
    }
    Ok(())
}
