//! What a side must be able to do.

use std::future::Future;
use std::path::Path;

use crate::Result;

/// The answer to a claim.
#[derive(Debug)]
pub enum Reply<G> {
    /// The caller runs the effect and settles.
    Granted(G),
    /// Done before, with an outcome of so many bytes.
    Done(usize),
    /// Somebody else runs it.
    Held,
}

impl<G> Reply<G> {
    /// The grant of a key nobody else claims.
    pub fn granted(self) -> Result<G> {
        match self {
            Reply::Granted(grant) => Ok(grant),
            Reply::Done(_) => Err("a fresh key was already done".into()),
            Reply::Held => Err("a fresh key was held".into()),
        }
    }
}

/// A store of claims. When `claim` or `settle` returns, its change is on stable storage.
pub trait Peer: Send + Sync + Sized + 'static {
    /// As the table prints it.
    const NAME: &'static str;
    /// What is on disk when a call returns, for the head of the table.
    const COMMITS: &'static str;
    /// A key, ready for a look-up.
    type Key: Clone + Send + Sync + 'static;
    /// The right to settle.
    type Grant: Send;
    /// One thread's way to look claims up.
    type Reader: Reader<Self::Key>;

    /// The key of a number.
    fn key(number: u64) -> Self::Key;
    /// A new store in an empty directory, with the claims of `0..done` done.
    fn create(dir: &Path, done: u64) -> Result<Self>;
    /// Claims; waits for the disk.
    fn claim(&self, key: &Self::Key) -> Result<Reply<Self::Grant>>;
    /// Settles as done; waits for the disk.
    fn settle(&self, grant: Self::Grant, outcome: &'static str) -> Result<()>;
    /// A new reader.
    fn reader(&self) -> Result<Self::Reader>;
}

/// A store that can have many requests in flight without a thread for each.
pub trait AsyncPeer: Peer {
    /// The twin of [`Peer::claim`].
    fn claim_async(&self, key: Self::Key) -> impl Future<Output = Result<Reply<Self::Grant>>> + Send;
    /// The twin of [`Peer::settle`].
    fn settle_async(&self, grant: Self::Grant, outcome: &'static str) -> impl Future<Output = Result<()>> + Send;
}

/// Looks up keys in chunks, so that nothing but look-ups is inside a reader's loop.
pub trait Reader<K>: Send {
    /// Looks up every key and touches every outcome.
    fn check(&mut self, keys: &[K]) -> Result<Tally>;
}

/// What a chunk of look-ups found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Keys that were done.
    pub done: u64,
    /// Bytes of their outcomes.
    pub bytes: u64,
    /// The sum of the first byte of each outcome: proof that it was reached.
    pub touched: u64,
}

impl Tally {
    /// Counts one outcome.
    pub fn add(&mut self, outcome: &[u8]) {
        self.done += 1;
        self.bytes += outcome.len() as u64;
        self.touched += u64::from(outcome.first().copied().unwrap_or(0));
    }
}
