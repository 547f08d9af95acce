//! fjall: one keyspace keyed by digest, `PersistMode::SyncAll` in every commit.
//!
//! fjall holds its journal through the sync, so commits of many threads do not share one. [`FjallEach`] is
//! that; [`FjallBatch`] shares a sync among everything queued. Tokens come from memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::Result;
use crate::batch::{Answer, Batched, Op, Store};
use crate::peer::{Peer, Reader, Reply, Tally};
use crate::record;
use crate::work::{self, Digest, FINGERPRINT, OUTCOME};

const COMMITS: &str = "fjall 3, PersistMode::SyncAll: one sync of the journal a commit";
const CACHE_BYTES: u64 = 512 << 20;
const LOADED_IN_ONE: usize = 10_000;
const STRIPES: usize = 256;

/// Best batch.
pub type FjallBatch = Batched<Fjall, { usize::MAX }>;

/// A database and its one keyspace.
pub struct Fjall {
    database: Database,
    claims: Keyspace,
    next_token: AtomicU64,
}

impl Fjall {
    fn open(dir: &Path, done: &[Digest]) -> Result<Self> {
        let database = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let claims = database.keyspace("claims", KeyspaceCreateOptions::default)?;
        let record = record::done(0, OUTCOME);
        for part in done.chunks(LOADED_IN_ONE) {
            let mut batch = database.batch();
            part.iter().for_each(|key| batch.insert(&claims, *key, record.as_slice()));
            batch.commit()?;
        }
        database.persist(PersistMode::SyncAll)?;
        Ok(Fjall { database, claims, next_token: AtomicU64::new(1) })
    }

    fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    fn write(&self, records: impl Iterator<Item = (Digest, Vec<u8>)>) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        records.for_each(|(key, record)| batch.insert(&self.claims, key, record));
        batch.commit()?;
        Ok(())
    }
}

impl Store for Fjall {
    const NAME: &'static str = "fjall, best batch";
    const COMMITS: &'static str = COMMITS;
    type Source = Keyspace;
    type Reader = FjallReader;

    fn create(dir: &Path, done: &[Digest]) -> Result<Self> {
        Fjall::open(dir, done)
    }

    fn source(&self) -> Keyspace {
        self.claims.clone()
    }

    fn reader(source: &Keyspace) -> Result<FjallReader> {
        Ok(FjallReader(source.clone()))
    }

    /// A write batch cannot be read from, so what it holds is kept beside it until the commit.
    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()> {
        let mut written = std::collections::HashMap::<Digest, Vec<u8>>::with_capacity(batch.len());
        for op in batch {
            let (Op::Claim { key } | Op::Settle { key, .. }) = op;
            let stored;
            let record = match written.get(key) {
                Some(record) => Some(record.as_slice()),
                None => {
                    stored = self.claims.get(key)?;
                    stored.as_deref()
                }
            };
            match (op, record) {
                (Op::Claim { .. }, Some(record)) => answers.push(record::standing(record)),
                (Op::Claim { .. }, None) => {
                    let token = self.token();
                    written.insert(*key, record::claimed(token, &FINGERPRINT).to_vec());
                    answers.push(Answer::Granted(token));
                }
                (Op::Settle { token, outcome, .. }, record) => {
                    record::may_settle(record, *token)?;
                    written.insert(*key, record::done(*token, outcome));
                    answers.push(Answer::Settled);
                }
            }
        }
        self.write(written.into_iter())
    }
}

/// One commit each, by the caller's own thread. A claim holds its key's stripe from look-up to commit.
pub struct FjallEach {
    fjall: Fjall,
    stripes: Vec<Mutex<()>>,
}

impl FjallEach {
    fn locked<T>(&self, key: &Digest, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let _held = self.stripes[usize::from(key[0]) % STRIPES].lock().unwrap_or_else(PoisonError::into_inner);
        change()
    }
}

impl Peer for FjallEach {
    const NAME: &'static str = "fjall, synced";
    const COMMITS: &'static str = COMMITS;
    type Key = Digest;
    type Grant = (Digest, u64);
    type Reader = FjallReader;

    fn key(number: u64) -> Digest {
        work::digest(number)
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Ok(FjallEach { fjall: Fjall::open(dir, &work::sorted_digests(done))?, stripes })
    }

    fn claim(&self, key: &Digest) -> Result<Reply<(Digest, u64)>> {
        self.locked(key, || {
            if let Some(record) = self.fjall.claims.get(key)? {
                return Ok(record::outcome(&record).map_or(Reply::Held, |outcome| Reply::Done(outcome.len())));
            }
            let token = self.fjall.token();
            self.fjall.write(std::iter::once((*key, record::claimed(token, &FINGERPRINT).to_vec())))?;
            Ok(Reply::Granted((*key, token)))
        })
    }

    fn settle(&self, (key, token): (Digest, u64), outcome: &'static str) -> Result<()> {
        self.locked(&key, || {
            record::may_settle(self.fjall.claims.get(key)?.as_deref(), token)?;
            self.fjall.write(std::iter::once((key, record::done(token, outcome))))
        })
    }

    fn reader(&self) -> Result<FjallReader> {
        Ok(FjallReader(self.fjall.claims.clone()))
    }
}

/// Reads of the latest state.
pub struct FjallReader(Keyspace);

impl Reader<Digest> for FjallReader {
    fn check(&mut self, keys: &[Digest]) -> Result<Tally> {
        let mut tally = Tally::default();
        for key in keys {
            if let Some(record) = self.0.get(key)?
                && let Some(outcome) = record::outcome(&record)
            {
                tally.add(outcome);
            }
        }
        Ok(tally)
    }
}
