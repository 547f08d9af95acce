//! For this repository's own proofs and fuzzers, and for nobody else: the bare store and the codec.
//! Nothing here is part of the public interface, and no open ledger can be weakened through it.

use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile, Mode};
use crate::engine::clock::Stamp;
use crate::engine::codec::{self, Anchor, LeftOutcome, Meta, SessionHead};
use crate::engine::recover::write_pages_back;
use crate::engine::store::{Batch, Store};
use crate::error::Result;

/// The store without the ledger around it, with commits as it never makes them.
#[derive(Debug)]
pub struct BareStore {
    store: Store,
    meta: Meta,
    two_phase: bool,
}

fn meta() -> Meta {
    let stamp = Stamp::default();
    Meta { ledger_id: [1; 16], epoch: 1, next_sequence: 1, count: 0, digest: 0, stamp, created_ms: 0 }
}

impl BareStore {
    /// Opens the store at `path`, or makes one. `page_pass`: every page is written back first, as
    /// the ledger does after a crash under the same boot.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(disk: &dyn Disk, path: &Path, two_phase: bool, page_pass: bool) -> Result<Self> {
        let failed = |error| crate::Error::io("opening", path, error);
        let there = disk.node(path).map_err(failed)?.is_some();
        let file: Arc<dyn DiskFile> = disk.open(path, Mode::OpenOrCreate).map_err(failed)?;
        let store = if there {
            if page_pass {
                write_pages_back(path, &*file)?;
            }
            Store::open(path, file, true, 1 << 20)?
        } else {
            Store::create(path, file, &meta())?
        };
        let meta = store.meta()?;
        Ok(BareStore { store, meta, two_phase })
    }

    /// Commits one row under a number of its own.
    ///
    /// # Errors
    /// Those of the store.
    pub fn commit(&mut self, number: u64, row: &[u8]) -> Result<()> {
        let mut batch = Batch::default();
        batch.append(number, |out| {
            out.extend_from_slice(row);
            Ok(())
        })?;
        self.meta.next_sequence += 1;
        if self.two_phase {
            self.store.commit(&batch, &self.meta, false)
        } else {
            self.store.commit_one_phase(&batch, &self.meta)
        }
    }

    /// The row under a number.
    ///
    /// # Errors
    /// Those of the store.
    pub fn row(&self, number: u64) -> Result<Option<Vec<u8>>> {
        self.store.row(number)
    }
}

/// Rewrites a ledger's meta row as the next format version would have it.
///
/// # Errors
/// Those of the store.
pub fn with_newer_meta(disk: &dyn Disk, path: &Path) -> Result<()> {
    let failed = |error| crate::Error::io("opening", path, error);
    let file = disk.open(path, Mode::Existing).map_err(failed)?;
    let store = Store::open(path, file, true, 1 << 20)?;
    store.write_meta_row(|mut sealed| {
        sealed.truncate(sealed.len().saturating_sub(4));
        if let Some(version) = sealed.first_mut() {
            *version += 1;
        }
        resealed(u64::MAX, &sealed)
    })?;
    store.close()
}

/// Reads a row of the log and writes it again.
pub fn event_again(sequence: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    let entry = codec::open_event(sequence, bytes).ok()?;
    let mut out = Vec::new();
    codec::seal_event(&mut out, sequence, &entry.head, &entry.event).ok()?;
    Some(out)
}

/// Reads a meta row and writes it again.
pub fn meta_again(bytes: &[u8]) -> Option<Vec<u8>> {
    codec::seal(u64::MAX, &codec::open::<Meta>("meta", u64::MAX, bytes).ok()?).ok()
}

/// Reads an anchor's record and writes it again.
pub fn anchor_again(bytes: &[u8]) -> Option<Vec<u8>> {
    codec::seal(0, &codec::open::<Anchor>("anchor", 0, bytes).ok()?).ok()
}

/// Reads a session file as far as it goes, and writes again what was read.
pub fn session_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, mut place) = codec::unframe::<SessionHead>(bytes, 0)?;
    let mut out = codec::frame(0, &head).ok()?;
    while let Some((left, next)) = codec::unframe::<LeftOutcome>(bytes, place) {
        out.extend(codec::frame(place, &left).ok()?);
        place = next;
    }
    Some(out)
}

/// Whether a body's row is as it was sealed.
pub fn body_is_whole(number: u64, row: &[u8]) -> bool {
    codec::open_body(number, row).is_ok()
}

/// The bytes with the checksum they should have: past it, a fuzzer meets the decoder.
pub fn resealed(number: u64, sealed: &[u8]) -> Vec<u8> {
    let mut out = sealed.to_vec();
    out.extend_from_slice(&codec::checksum(number, sealed).to_le_bytes());
    out
}
