//! LMDB through heed: one database keyed by digest, default durability. Tokens come from memory.

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, WithTls};

use crate::Result;
use crate::batch::{Answer, Batched, Op, Store};
use crate::peer::{Reader, Tally};
use crate::record;
use crate::work::{Digest, FINGERPRINT, OUTCOME};

const MAP_BYTES: usize = 16 << 30;
const LOADED_IN_ONE: usize = 200_000;

/// Best batch.
pub type LmdbBatch = Batched<Lmdb, { usize::MAX }>;

/// An environment and its one database.
#[derive(Clone)]
pub struct Lmdb {
    env: Env<WithTls>,
    claims: Database<Bytes, Bytes>,
    next_token: u64,
}

impl Store for Lmdb {
    const NAME: &'static str = "LMDB";
    const COMMITS: &'static str = "LMDB (heed 0.22), default flags: data pages synced, then the meta page synced";
    type Source = Lmdb;
    type Reader = LmdbReader;

    fn create(dir: &Path, done: &[Digest]) -> Result<Self> {
        // SAFETY: the directory is new and of this process alone, and nothing else writes the mapped file.
        let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(dir)? };
        let mut transaction = env.write_txn()?;
        let claims = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        let record = record::done(0, OUTCOME);
        for part in done.chunks(LOADED_IN_ONE) {
            let mut transaction = env.write_txn()?;
            for key in part {
                claims.put(&mut transaction, key.as_slice(), record.as_slice())?;
            }
            transaction.commit()?;
        }
        Ok(Lmdb { env, claims, next_token: 1 })
    }

    fn source(&self) -> Lmdb {
        self.clone()
    }

    fn reader(source: &Lmdb) -> Result<LmdbReader> {
        Ok(LmdbReader(source.clone()))
    }

    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for op in batch {
            let (Op::Claim { key } | Op::Settle { key, .. }) = op;
            let record = self.claims.get(&transaction, key.as_slice())?;
            match (op, record) {
                (Op::Claim { .. }, Some(record)) => answers.push(record::standing(record)),
                (Op::Claim { .. }, None) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.claims.put(
                        &mut transaction,
                        key.as_slice(),
                        record::claimed(token, &FINGERPRINT).as_slice(),
                    )?;
                    answers.push(Answer::Granted(token));
                }
                (Op::Settle { token, outcome, .. }, record) => {
                    record::may_settle(record, *token)?;
                    self.claims.put(&mut transaction, key.as_slice(), record::done(*token, outcome).as_slice())?;
                    answers.push(Answer::Settled);
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Reads on a read transaction that is kept for a chunk, then refreshed.
pub struct LmdbReader(Lmdb);

impl Reader<Digest> for LmdbReader {
    fn check(&mut self, keys: &[Digest]) -> Result<Tally> {
        let transaction = self.0.env.read_txn()?;
        let mut tally = Tally::default();
        for key in keys {
            if let Some(record) = self.0.claims.get(&transaction, key)?
                && let Some(outcome) = record::outcome(record)
            {
                tally.add(outcome);
            }
        }
        Ok(tally)
    }
}
