//! SQLite through rusqlite: a table of claims with a UNIQUE key, WAL, synchronous=FULL.
//!
//! - [`AsWritten`]: as people write it. Each statement is its own commit, default settings otherwise; behind
//!   one mutex for threads ([`SqliteEach`]), behind a queue for many waiting ([`SqliteEachQueued`]).
//! - [`Tuned`]: as well as it can be batched. One transaction of everything queued, prepared statements, a
//!   large cache, a memory map, and a log that is checkpointed only when 64 MiB of it are full.
//!
//! The rowid is the fencing token. A rowid table with a UNIQUE index and not WITHOUT ROWID: with random keys
//! an insert then dirties an index page of small entries, and both halves of a pair append to shared pages.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::Result;
use crate::batch::{Answer, Batched, Op, Store};
use crate::peer::{Peer, Reader, Reply, Tally};
use crate::work::{self, Digest, FINGERPRINT, OUTCOME};

const SCHEMA: &str = "CREATE TABLE claims (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    fingerprint BLOB NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    outcome BLOB
)";
const CLAIM: &str = "INSERT INTO claims (key, fingerprint) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
const STANDING: &str = "SELECT id, done, outcome FROM claims WHERE key = ?1";
const SETTLE: &str = "UPDATE claims SET done = 1, outcome = ?2 WHERE id = ?1 AND done = 0";
const LOAD: &str = "INSERT INTO claims (key, fingerprint, done, outcome) VALUES (?1, ?2, 1, ?3)";
const LOOK_UP: &str = "SELECT outcome FROM claims WHERE key = ?1 AND done = 1";

const COMMITS: &str = "SQLite, WAL, synchronous=FULL: one sync of the log a commit";
const TUNING: [(&str, i64); 3] =
    [("cache_size", -512 * 1_024), ("mmap_size", 4 << 30), ("wal_autocheckpoint", 16 * 1_024)];

/// Best batch; each look-up its own read transaction.
pub type SqliteBatch = Batched<Tuned<false>, { usize::MAX }>;
/// Best batch; look-ups share a read transaction for a chunk.
pub type SqliteBatchKept = Batched<Tuned<true>, { usize::MAX }>;
/// One commit each, many waiting in a queue.
pub type SqliteEachQueued = Batched<AsWritten, 1>;

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(format!("SQLite kept journal mode {mode}").into());
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

fn tune(connection: &Connection) -> Result<()> {
    for (name, value) in TUNING {
        connection.query_row(&format!("PRAGMA {name} = {value}"), [], |_| Ok(())).optional()?;
    }
    Ok(())
}

/// Creates the table and loads it in one transaction, at the settings of the batching peer.
fn create(path: &Path, done: &[Digest]) -> Result<()> {
    let mut connection = connect(path)?;
    tune(&connection)?;
    let transaction = connection.transaction()?;
    transaction.execute(SCHEMA, [])?;
    let mut load = transaction.prepare(LOAD)?;
    for key in done {
        load.execute(params![key, FINGERPRINT, OUTCOME.as_bytes()])?;
    }
    drop(load);
    transaction.commit()?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join("claims.sqlite")
}

fn settle(statement: &mut CachedStatement<'_>, token: u64, outcome: &str) -> Result<()> {
    match statement.execute(params![token.cast_signed(), outcome.as_bytes()])? {
        1 => Ok(()),
        _ => Err("settled by another token".into()),
    }
}

fn standing(statement: &mut CachedStatement<'_>, key: &Digest) -> Result<(u64, Option<usize>)> {
    let standing = statement.query_row([key], |row| {
        let outcome = row.get_ref(2)?.as_blob_or_null()?.map(<[u8]>::len);
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), outcome))
    })?;
    Ok(standing)
}

/// Batched.
pub struct Tuned<const KEPT_READS: bool> {
    connection: Connection,
    path: PathBuf,
}

impl<const KEPT_READS: bool> Store for Tuned<KEPT_READS> {
    const NAME: &'static str = if KEPT_READS { "SQLite, kept reads" } else { "SQLite, best batch" };
    const COMMITS: &'static str = COMMITS;
    type Source = PathBuf;
    type Reader = SqliteReader<KEPT_READS>;

    fn create(dir: &Path, done: &[Digest]) -> Result<Self> {
        let path = path_in(dir);
        create(&path, done)?;
        let connection = connect(&path)?;
        tune(&connection)?;
        Ok(Tuned { connection, path })
    }

    fn source(&self) -> PathBuf {
        self.path.clone()
    }

    fn reader(source: &PathBuf) -> Result<SqliteReader<KEPT_READS>> {
        SqliteReader::open(source)
    }

    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()> {
        let transaction = self.connection.transaction()?;
        let mut claims = transaction.prepare_cached(CLAIM)?;
        let mut standings = transaction.prepare_cached(STANDING)?;
        let mut settles = transaction.prepare_cached(SETTLE)?;
        for op in batch {
            answers.push(match op {
                Op::Claim { key } => match claims.execute(params![key, FINGERPRINT])? {
                    1 => Answer::Granted(transaction.last_insert_rowid().cast_unsigned()),
                    _ => standing(&mut standings, key)?.1.map_or(Answer::Held, Answer::Done),
                },
                Op::Settle { token, outcome, .. } => {
                    settle(&mut settles, *token, outcome)?;
                    Answer::Settled
                }
            });
        }
        drop((claims, standings, settles));
        transaction.commit()?;
        Ok(())
    }
}

/// One commit a statement.
pub struct AsWritten {
    connection: Connection,
    path: PathBuf,
}

impl AsWritten {
    fn claim(&self, key: &Digest) -> Result<Answer> {
        let inserted = self.connection.prepare_cached(CLAIM)?.execute(params![key, FINGERPRINT])?;
        let (token, outcome) = standing(&mut self.connection.prepare_cached(STANDING)?, key)?;
        Ok(match (inserted, outcome) {
            (1, _) => Answer::Granted(token),
            (_, Some(bytes)) => Answer::Done(bytes),
            (_, None) => Answer::Held,
        })
    }

    fn settle(&self, token: u64, outcome: &str) -> Result<()> {
        settle(&mut self.connection.prepare_cached(SETTLE)?, token, outcome)
    }
}

impl Store for AsWritten {
    const NAME: &'static str = "SQLite, one commit each";
    const COMMITS: &'static str = COMMITS;
    type Source = PathBuf;
    type Reader = SqliteReader<false>;

    fn create(dir: &Path, done: &[Digest]) -> Result<Self> {
        let path = path_in(dir);
        create(&path, done)?;
        Ok(AsWritten { connection: connect(&path)?, path })
    }

    fn source(&self) -> PathBuf {
        self.path.clone()
    }

    fn reader(source: &PathBuf) -> Result<SqliteReader<false>> {
        SqliteReader::open(source)
    }

    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()> {
        for op in batch {
            answers.push(match op {
                Op::Claim { key } => self.claim(key)?,
                Op::Settle { token, outcome, .. } => {
                    self.settle(*token, outcome)?;
                    Answer::Settled
                }
            });
        }
        Ok(())
    }
}

/// One commit each behind one mutex: connections of their own would only wait for each other by sleeping.
pub struct SqliteEach(Mutex<AsWritten>);

impl Peer for SqliteEach {
    const NAME: &'static str = AsWritten::NAME;
    const COMMITS: &'static str = COMMITS;
    type Key = Digest;
    type Grant = u64;
    type Reader = SqliteReader<false>;

    fn key(number: u64) -> Digest {
        work::digest(number)
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        Ok(SqliteEach(Mutex::new(AsWritten::create(dir, &work::sorted_digests(done))?)))
    }

    fn claim(&self, key: &Digest) -> Result<Reply<u64>> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).claim(key)? {
            Answer::Granted(token) => Ok(Reply::Granted(token)),
            Answer::Done(bytes) => Ok(Reply::Done(bytes)),
            Answer::Held | Answer::Settled => Ok(Reply::Held),
        }
    }

    fn settle(&self, grant: u64, outcome: &'static str) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).settle(grant, outcome)
    }

    fn reader(&self) -> Result<SqliteReader<false>> {
        SqliteReader::open(&self.0.lock().unwrap_or_else(PoisonError::into_inner).path)
    }
}

/// A connection of its own and a prepared statement.
pub struct SqliteReader<const KEPT_READS: bool>(Connection);

impl<const KEPT_READS: bool> SqliteReader<KEPT_READS> {
    fn open(path: &Path) -> Result<Self> {
        let connection = connect(path)?;
        tune(&connection)?;
        Ok(SqliteReader(connection))
    }
}

impl<const KEPT_READS: bool> Reader<Digest> for SqliteReader<KEPT_READS> {
    fn check(&mut self, keys: &[Digest]) -> Result<Tally> {
        let kept = if KEPT_READS { Some(self.0.unchecked_transaction()?) } else { None };
        let mut statement = self.0.prepare_cached(LOOK_UP)?;
        let mut tally = Tally::default();
        for key in keys {
            let mut rows = statement.query([key])?;
            if let Some(row) = rows.next()? {
                tally.add(row.get_ref(0)?.as_blob()?);
            }
        }
        drop(statement);
        kept.map(|transaction| transaction.commit()).transpose()?;
        Ok(tally)
    }
}
