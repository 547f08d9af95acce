//! redb as it is: one table keyed by digest, two-phase commits.
//!
//! Tokens come from memory, which is kinder than a ledger may be: a real one would have to keep them on disk.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::Result;
use crate::batch::{Answer, Batched, Op, Store};
use crate::peer::{Reader, Tally};
use crate::record;
use crate::work::{CHUNK, Digest, FINGERPRINT, OUTCOME};

const CLAIMS: TableDefinition<&Digest, &[u8]> = TableDefinition::new("claims");
const LOADED_IN_ONE: usize = 200_000;
const CACHE_BYTES: usize = 1 << 30;

/// Best batch.
pub type RedbBatch = Batched<Redb, { usize::MAX }>;

/// The writer's side.
pub struct Redb {
    database: Arc<Database>,
    next_token: u64,
}

fn begin(database: &Database) -> Result<WriteTransaction> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

impl Store for Redb {
    const NAME: &'static str = "raw redb";
    const COMMITS: &'static str = "redb 4.6, Durability::Immediate, two-phase: two syncs a commit";
    type Source = Arc<Database>;
    type Reader = RedbReader;

    fn create(dir: &Path, done: &[Digest]) -> Result<Self> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(dir.join("raw.redb"))?;
        let transaction = begin(&database)?;
        transaction.open_table(CLAIMS)?;
        transaction.commit()?;
        let record = record::done(0, OUTCOME);
        for part in done.chunks(LOADED_IN_ONE) {
            let transaction = begin(&database)?;
            let mut table = transaction.open_table(CLAIMS)?;
            for key in part {
                table.insert(key, record.as_slice())?;
            }
            drop(table);
            transaction.commit()?;
        }
        Ok(Redb { database: Arc::new(database), next_token: 1 })
    }

    fn source(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    fn reader(source: &Arc<Database>) -> Result<RedbReader> {
        Ok(RedbReader { database: Arc::clone(source) })
    }

    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()> {
        let transaction = begin(&self.database)?;
        let mut table = transaction.open_table(CLAIMS)?;
        for op in batch {
            answers.push(match op {
                Op::Claim { key } => {
                    let standing = table.get(key)?.map(|record| record::standing(record.value()));
                    match standing {
                        Some(standing) => standing,
                        None => {
                            let token = self.next_token;
                            self.next_token += 1;
                            table.insert(key, record::claimed(token, &FINGERPRINT).as_slice())?;
                            Answer::Granted(token)
                        }
                    }
                }
                Op::Settle { key, token, outcome } => {
                    let record = table.get(key)?;
                    record::may_settle(record.as_ref().map(|record| record.value()), *token)?;
                    drop(record);
                    table.insert(key, record::done(*token, outcome).as_slice())?;
                    Answer::Settled
                }
            });
        }
        drop(table);
        transaction.commit()?;
        Ok(())
    }
}

/// Reads on a read transaction and table that are kept for a chunk, then refreshed.
pub struct RedbReader {
    database: Arc<Database>,
}

impl Reader<Digest> for RedbReader {
    fn check(&mut self, keys: &[Digest]) -> Result<Tally> {
        debug_assert!(keys.len() <= CHUNK);
        let table: ReadOnlyTable<&Digest, &[u8]> = self.database.begin_read()?.open_table(CLAIMS)?;
        let mut tally = Tally::default();
        for key in keys {
            if let Some(record) = table.get(key)?
                && let Some(outcome) = record::outcome(record.value())
            {
                tally.add(outcome);
            }
        }
        Ok(tally)
    }
}
