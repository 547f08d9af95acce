//! The one error type. What the world did is an [`Answer`](crate::Answer); an [`Error`] is bad
//! input, a storage failure, or an unknown end of a write.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use crate::Outcome;

/// A result with the ledger's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Its text says what failed, on what, and what to do next.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    what: String,
    next: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    after_effect: bool,
    outcome: Option<Outcome>,
}

/// The kinds of [`Error`]. More may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something that is never right: an empty key part, a lease of zero, JSON
    /// with duplicate names. Nothing was written.
    BadInput,
    /// There is no ledger at the path. Nothing was written.
    Missing,
    /// `create` found something at the path. Nothing was written.
    Exists,
    /// Another process, or another handle of this one, holds the file. Nothing was written.
    Locked,
    /// The file is not a ledger, or is half of one. Nothing was written but the `.lock` file beside it.
    NotALedger,
    /// The file was written by a newer version. Nothing was written.
    NewerFormat,
    /// Bytes read are not the bytes that were written. Nothing was written.
    Damaged,
    /// The file is older than its anchor, another file took its place, or one of the two is gone. Nothing was
    /// written.
    RolledBack,
    /// The file or its folder cannot be used as asked: read-only, no locks, a network file
    /// system. Nothing was written.
    Unsupported,
    /// The call was made where it could only deadlock: inside the effect of the same key, or on
    /// the thread that is committing. Nothing was written.
    Reentrant,
    /// The handle was inherited over a `fork`; only the parent may use it. Nothing was written.
    Forked,
    /// Storage failed before this request was written. Nothing of it is on disk; the ledger is
    /// closed until it is reopened.
    Storage,
    /// Storage failed while this request was being written. It may be on disk; the ledger is
    /// closed until it is reopened. The effect must not run.
    Unknown,
    /// The ledger was closed.
    Closed,
}

impl ErrorKind {
    /// A short, stable name: `bad_input`, `damaged`, and so on.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::BadInput => "bad_input",
            ErrorKind::Missing => "missing",
            ErrorKind::Exists => "exists",
            ErrorKind::Locked => "locked",
            ErrorKind::NotALedger => "not_a_ledger",
            ErrorKind::NewerFormat => "newer_format",
            ErrorKind::Damaged => "damaged",
            ErrorKind::RolledBack => "rolled_back",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Reentrant => "reentrant",
            ErrorKind::Forked => "forked",
            ErrorKind::Storage => "storage",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Closed => "closed",
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, what: what.into(), next: None, source: None, after_effect: false, outcome: None }))
    }

    pub(crate) fn bad_input(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::BadInput, what)
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Damaged, what)
    }

    /// A failed file operation, with the kind that a caller can act on.
    pub(crate) fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        let (kind, next) = match source.kind() {
            std::io::ErrorKind::NotFound => (ErrorKind::Missing, "check the path, or create the ledger first"),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (ErrorKind::Unsupported, "give this user write access to the file and its folder")
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                (ErrorKind::Storage, "free some space, then reopen the ledger")
            }
            _ => (ErrorKind::Storage, "check the disk, then reopen the ledger"),
        };
        Error::new(kind, format!("{doing} {}: {source}", path.display())).next(next).source(source)
    }

    /// What the reader should do now.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.0.next = Some(next.into());
        self
    }

    /// Says first what the failure is about.
    pub(crate) fn about(mut self, what: impl fmt::Display) -> Self {
        self.0.what = format!("{what}: {}", self.0.what);
        self
    }

    pub(crate) fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Marks an error that came after the effect ran, and keeps what the effect returned.
    pub(crate) fn after_effect(mut self, outcome: Option<Outcome>) -> Self {
        self.0.after_effect = true;
        self.0.outcome = outcome;
        self
    }

    /// Whether the disk, or what this user may have of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        let io = self.0.source.as_deref().and_then(|source| source.downcast_ref::<std::io::Error>());
        io.is_some_and(|io| matches!(io.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded))
    }

    /// The same failure told to another caller (the source is not shared).
    pub(crate) fn again(&self, kind: ErrorKind) -> Self {
        let mut error = Error::new(kind, self.0.what.clone());
        error.0.next = self.0.next.clone();
        error
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the write may or may not be on disk. The effect must not run.
    pub fn is_unknown(&self) -> bool {
        self.0.kind == ErrorKind::Unknown
    }

    /// Whether the file's bytes are not what was written, or an older file took its place.
    pub fn is_damaged(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Damaged | ErrorKind::RolledBack)
    }

    /// Whether the call itself was wrong, whatever the ledger holds.
    pub fn is_bad_input(&self) -> bool {
        self.0.kind == ErrorKind::BadInput
    }

    /// Whether another handle or process holds the file.
    pub fn is_locked(&self) -> bool {
        self.0.kind == ErrorKind::Locked
    }

    /// Whether the ledger must be reopened before anything else works.
    pub fn is_storage(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Storage | ErrorKind::Unknown)
    }

    /// Whether the effect had already run when the call failed. False: it was never started, or it said that
    /// it certainly did nothing.
    pub fn after_the_effect(&self) -> bool {
        self.0.after_effect
    }

    /// What the effect returned, where the failure came after it.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.outcome.as_ref()
    }

    /// What to do next, where the ledger knows it.
    pub fn advice(&self) -> Option<&str> {
        self.0.next.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        if self.0.after_effect {
            f.write_str(" (after the effect ran: do not run it again)")?;
        }
        match &self.0.next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.0.kind.name())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
