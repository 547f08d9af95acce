//! The log, the outcomes and the meta row in one redb file. The only file that names redb.
//!
//! Every commit is durable and two-phase (P1); none is ever mixed with a weaker one. A panic inside
//! redb, as a damaged file can cause, comes out as `Damaged`. Nothing here decides anything.

use std::ops::{Bound, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend, StorageError, TableDefinition,
};

use crate::engine::codec::{self, Meta};
use crate::engine::files::{DiskFile, LockKind};
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::Outcome;

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const OUTCOMES: TableDefinition<u64, &[u8]> = TableDefinition::new("outcomes");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

const META_ROW: &str = "ledger";
/// The meta row has no sequence; this number stands in its checksum instead.
const META_NUMBER: u64 = u64::MAX;

/// redb's own page cache. The index is the cache that matters; this one serves appends and scans.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// An open redb file.
#[derive(Debug)]
pub(crate) struct Store {
    db: Option<Database>,
    path: PathBuf,
}

/// What one commit changes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The sealed rows, one after the other, each with its length before it.
    arena: Vec<u8>,
    rows: Vec<(u64, Range<usize>)>,
    bodies: Vec<(u64, Outcome)>,
    body_bytes: usize,
    /// Rows of the log below this number go.
    pub begin: u64,
    pub dead_bodies: Vec<u64>,
}

/// Consecutive rows of the log lie together in blocks of at most this many bytes, or alone where one
/// is longer: a block then fills one page of redb's, less the 16 bytes that redb takes of it.
const BLOCK_BYTES_MAX: usize = 4096 - 16;

/// Before each row of a block: its length.
const LEN_BYTES: usize = 4;

impl Batch {
    /// Adds a row that `seal` appends to the arena, and gives its bytes back.
    pub fn append(&mut self, sequence: u64, seal: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<&[u8]> {
        let start = self.arena.len();
        self.arena.extend_from_slice(&[0; LEN_BYTES]);
        let sealed = seal(&mut self.arena).and_then(|()| {
            let len = self.arena.len() - start - LEN_BYTES;
            u32::try_from(len).map_err(|_| Error::bad_input(format!("a row of the log has {len} bytes")))
        });
        let len = match sealed {
            Ok(len) => len,
            Err(error) => {
                self.arena.truncate(start);
                return Err(error);
            }
        };
        if let Some(place) = self.arena.get_mut(start..start + LEN_BYTES) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        let row = start + LEN_BYTES..self.arena.len();
        self.rows.push((sequence, row.clone()));
        Ok(self.arena.get(row).unwrap_or_default())
    }

    /// Adds a body, under a number above those of the bodies so far.
    pub fn append_body(&mut self, number: u64, body: Outcome) {
        self.body_bytes += body.body().len();
        self.bodies.push((number, body));
    }

    /// The rows so far as blocks, each with the number of its first row.
    fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.rows.as_slice();
        std::iter::from_fn(move || {
            let (first, range) = rest.first()?;
            let start = range.start - LEN_BYTES;
            let fits = |(at, (number, row)): &(usize, &(u64, Range<usize>))| {
                *at == 0 || (*number == first + *at as u64 && row.end - start <= BLOCK_BYTES_MAX)
            };
            let count = rest.iter().enumerate().take_while(fits).count();
            let (block, others) = rest.split_at_checked(count)?;
            rest = others;
            Some((*first, self.arena.get(start..block.last()?.1.end)?))
        })
    }

    /// Whether rows are added.
    pub fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// A row of this batch that is not committed yet.
    pub fn row(&self, sequence: u64) -> Option<&[u8]> {
        let at = self.rows.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
        self.arena.get(self.rows.get(at)?.1.clone())
    }

    /// A body of this batch. They are added in order of their numbers.
    pub fn body(&self, number: u64) -> Option<Outcome> {
        let at = self.bodies.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.bodies.get(at).map(|(_, body)| body.clone())
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.begin == 0 && self.dead_bodies.is_empty()
    }

    /// How many bytes the rows and bodies have.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.body_bytes
    }

    /// Empties the batch and keeps its memory for the next.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.rows.clear();
        self.bodies.clear();
        self.body_bytes = 0;
        self.begin = 0;
        self.dead_bodies.clear();
    }
}

impl Store {
    /// Makes a new redb file with the tables and the meta row.
    pub fn create(path: &Path, file: Arc<dyn DiskFile>, meta: &Meta) -> Result<Self> {
        let store = Store::start(path, file, false, CACHE_BYTES)?;
        store.commit(&Batch::default(), meta, false)?;
        Ok(store)
    }

    /// Opens a redb file. `check`: verifies every page checksum first.
    pub fn open(path: &Path, file: Arc<dyn DiskFile>, check: bool, cache_bytes: usize) -> Result<Self> {
        Store::start(path, file, check, cache_bytes)
    }

    fn start(path: &Path, file: Arc<dyn DiskFile>, check: bool, cache_bytes: usize) -> Result<Self> {
        let db = guarded(path, || {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes).set_check_integrity_on_open(check);
            builder.create_with_backend(Backend(file)).map_err(|error| refused(path, error))
        })?;
        Ok(Store { db: Some(db), path: path.to_owned() })
    }

    fn db(&self) -> Result<&Database> {
        self.db.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the ledger is closed"))
    }

    /// Writes one batch and the meta row, durable when it returns. An error leaves it unknown
    /// whether the batch is on disk.
    pub fn commit(&self, batch: &Batch, meta: &Meta, quick_repair: bool) -> Result<()> {
        self.commit_as(batch, meta, quick_repair, true)
    }

    /// A commit as the ledger never makes one, for the proof that it must not.
    #[cfg(feature = "testkit")]
    pub fn commit_one_phase(&self, batch: &Batch, meta: &Meta) -> Result<()> {
        self.commit_as(batch, meta, false, false)
    }

    /// Puts bytes in place of the meta row, as a version that is yet to be written would.
    #[cfg(feature = "testkit")]
    pub fn write_meta_row(&self, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<()> {
        let meta = codec::seal(META_NUMBER, &self.meta()?)?;
        guarded(&self.path, || {
            let written = self.write(&Batch::default(), &change(meta), false, true);
            written.map_err(|error| failed(&self.path, "writing to", error))
        })
    }

    fn commit_as(&self, batch: &Batch, meta: &Meta, quick_repair: bool, two_phase: bool) -> Result<()> {
        let meta = codec::seal(META_NUMBER, meta)?;
        guarded(&self.path, || {
            let written = self.write(batch, &meta, quick_repair, two_phase);
            written.map_err(|error| failed(&self.path, "writing to", error))
        })
    }

    fn write(
        &self,
        batch: &Batch,
        meta: &[u8],
        quick_repair: bool,
        two_phase: bool,
    ) -> std::result::Result<(), redb::Error> {
        let db = self.db.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut write = db.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        write.set_two_phase_commit(two_phase);
        write.set_quick_repair(quick_repair);
        {
            let mut log = write.open_table(LOG)?;
            cut(&mut log, batch.begin)?;
            for (first, block) in batch.blocks() {
                log.insert(first, block)?;
            }
            let mut outcomes = write.open_table(OUTCOMES)?;
            for (number, body) in &batch.bodies {
                let mut row = outcomes.insert_reserve(number, codec::sealed_body_len(body.body()))?;
                codec::seal_body(*number, body.body(), row.as_mut());
            }
            for number in &batch.dead_bodies {
                outcomes.remove(number)?;
            }
            write.open_table(META)?.insert(META_ROW, meta)?;
        }
        write.commit()?;
        Ok(())
    }

    /// The meta row.
    pub fn meta(&self) -> Result<Meta> {
        let read = |db: &Database| -> std::result::Result<Option<Vec<u8>>, redb::Error> {
            let table = match db.begin_read()?.open_table(META) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(table.get(META_ROW)?.map(|row| row.value().to_vec()))
        };
        let row = self.reading(read)?;
        let row = row.ok_or_else(|| {
            Error::new(ErrorKind::NotALedger, format!("{} is a redb file but not a ledger", self.path.display()))
                .next("check the path; the ledger never opens a file that it did not create")
        })?;
        codec::open(&format!("the meta row of {}", self.path.display()), META_NUMBER, &row)
    }

    /// One row of the log.
    pub fn row(&self, sequence: u64) -> Result<Option<Vec<u8>>> {
        self.reading(|db| {
            let log = db.begin_read()?.open_table(LOG)?;
            let Some(block) = log.range(..=sequence)?.next_back() else { return Ok(None) };
            let (first, block) = block?;
            let row = rows_of(first.value(), block.value()).find(|row| row.is_none_or(|(number, _)| number == sequence));
            Ok(row.map(|row| row.map(|(_, row)| row.to_vec())))
        })?
        .map(|row| row.ok_or_else(|| self.broken_block(sequence)))
        .transpose()
    }

    fn broken_block(&self, sequence: u64) -> Error {
        damaged(&self.path, &format!("the block with log sequence {sequence} does not hold whole rows"))
    }

    /// One body; `None` where there is none.
    pub fn body(
        &self,
        number: u64,
        kind: crate::outcome::Kind,
        error: bool,
    ) -> Result<Option<Outcome>> {
        let row = self.reading(|db| {
            // The table lives until the bytes are copied: a row of `get` does not keep its read
            // transaction alive, and its page would be free for the writer.
            let outcomes = db.begin_read()?.open_table(OUTCOMES)?;
            let row = outcomes.get(number)?;
            Ok(row.map(|row| {
                codec::open_body(number, row.value()).map(|body| Outcome::new(kind, error, body))
            }))
        })?;
        row.transpose()
    }

    /// Whether a body is stored under this number.
    pub fn has_body(&self, number: u64) -> Result<bool> {
        self.reading(|db| Ok(db.begin_read()?.open_table(OUTCOMES)?.get(number)?.is_some()))
    }

    /// The number of the oldest body that is stored.
    pub fn first_body(&self) -> Result<Option<u64>> {
        self.reading(|db| Ok(db.begin_read()?.open_table(OUTCOMES)?.first()?.map(|(number, _)| number.value())))
    }

    /// Gives every row of the log from `first` on to `take`, in order, until it says stop.
    pub fn scan(&self, range: Range<u64>, mut take: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        let walk = |db: &Database| -> std::result::Result<Result<()>, redb::Error> {
            let table = db.begin_read()?.open_table(LOG)?;
            // The block before may hold the first of them.
            let before = table.range(..range.start)?.next_back().transpose()?;
            let begin = before.map_or(range.start, |(first, _)| first.value());
            for block in table.range(begin..range.end)? {
                let (first, block) = block?;
                for row in rows_of(first.value(), block.value()) {
                    let Some((sequence, row)) = row else { return Ok(Err(self.broken_block(first.value()))) };
                    if !range.contains(&sequence) {
                        continue;
                    }
                    match take(sequence, row) {
                        Ok(true) => {}
                        Ok(false) => return Ok(Ok(())),
                        Err(error) => return Ok(Err(error)),
                    }
                }
            }
            Ok(Ok(()))
        };
        self.reading(walk)?
    }

    fn reading<T>(&self, read: impl FnOnce(&Database) -> std::result::Result<T, redb::Error>) -> Result<T> {
        let db = self.db()?;
        guarded(&self.path, || read(db).map_err(|error| failed(&self.path, "reading", error)))
    }

    /// Closes the file, with what redb writes at its end.
    pub fn close(mut self) -> Result<()> {
        let Some(db) = self.db.take() else { return Ok(()) };
        guarded(&self.path, || db.close().map_err(|error| refused(&self.path, error)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(db) = self.db.take() {
            // A damaged file can make redb panic even here; the ledger has answered already.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(db)));
        }
    }
}

/// The rows of a block with their numbers, the first of them `first`; ends with `None` where the
/// block does not end with a row.
fn rows_of(first: u64, block: &[u8]) -> impl Iterator<Item = Option<(u64, &[u8])>> {
    let (mut rest, mut number) = (block, first);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let split = rest.split_first_chunk::<LEN_BYTES>();
        let row = split.and_then(|(len, rows)| rows.split_at_checked(u32::from_le_bytes(*len) as usize));
        let Some((row, others)) = row else {
            rest = &[];
            return Some(None);
        };
        rest = others;
        number = number.wrapping_add(1);
        Some(Some((number.wrapping_sub(1), row)))
    })
}

/// Takes the rows below `begin` out. A block that goes on beyond it stays with its rest.
fn cut(log: &mut redb::Table<'_, u64, &'static [u8]>, begin: u64) -> std::result::Result<(), redb::Error> {
    let mut rest = None;
    while log.first()?.is_some_and(|(first, _)| first.value() < begin) {
        let Some((first, block)) = log.pop_first()? else { break };
        let kept = |row: &Option<(u64, &[u8])>| row.is_some_and(|(number, _)| number >= begin);
        let kept = rows_of(first.value(), block.value()).filter(kept).flatten();
        rest = kept.fold(None, |rest: Option<(u64, Vec<u8>)>, (number, row)| {
            let (first, mut rows) = rest.unwrap_or((number, Vec::new()));
            rows.extend_from_slice(&(row.len() as u32).to_le_bytes());
            rows.extend_from_slice(row);
            Some((first, rows))
        });
    }
    if let Some((first, rows)) = rest {
        log.insert(first, rows.as_slice())?;
    }
    Ok(())
}

/// Runs redb and turns its panic into an error.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(damaged(path, &format!("redb panicked: {text}")))
    })
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::damaged(format!("{} is damaged: {what}", path.display()))
        .next("keep a copy of the file and restore a good one; the ledger does not repair what it cannot vouch for")
}

fn refused(path: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            Error::new(ErrorKind::Locked, format!("{} is open in another program", path.display()))
                .next("close that program, or wait for it")
        }
        DatabaseError::UpgradeRequired(version) => {
            Error::new(ErrorKind::NotALedger, format!("{} is a redb file of the old format {version}", path.display()))
        }
        DatabaseError::Storage(error) => stored(path, "opening", error),
        other => damaged(path, &other.to_string()),
    }
}

fn failed(path: &Path, doing: &str, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) => stored(path, doing, StorageError::Io(error)),
        redb::Error::Corrupted(text) => stored(path, doing, StorageError::Corrupted(text)),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            Error::new(ErrorKind::Storage, format!("{doing} {}: {error}", path.display())).next("reopen the ledger")
        }
        other => damaged(path, &other.to_string()),
    }
}

fn stored(path: &Path, doing: &str, error: StorageError) -> Error {
    match error {
        StorageError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Error::new(ErrorKind::NotALedger, format!("{} is not a ledger: {error}", path.display()))
                .next("check the path; a ledger that was damaged must be restored from a copy")
        }
        StorageError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            damaged(path, "it is shorter than it should be")
        }
        StorageError::Io(error) => Error::io(doing, path, error),
        StorageError::Corrupted(text) => damaged(path, &text),
        other => {
            Error::new(ErrorKind::Storage, format!("{doing} {}: {other}", path.display())).next("reopen the ledger")
        }
    }
}

/// A file of the [`Disk`](crate::engine::files::Disk) as redb wants it.
#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        if cfg!(onceledger_canary = "acknowledge_before_sync") {
            return Ok(());
        }
        let synced = self.0.sync();
        if cfg!(onceledger_canary = "ignore_a_failed_sync") { Ok(()) } else { synced }
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.0.unlock()
    }

    /// One lock on the whole file stands for every range: the ledger uses redb alone, and redb
    /// itself takes the same lock, so a foreign redb program is kept out too.
    fn try_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> std::result::Result<bool, redb::BackendError> {
        self.0.try_lock(LockKind::Exclusive).map_err(redb::BackendError::Io)
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> std::result::Result<(), redb::BackendError> {
        self.0.unlock().map_err(redb::BackendError::Io)
    }
}
