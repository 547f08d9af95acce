//! Every byte that the ledger lays out itself: rows of the log, the meta row, the anchor, session
//! files. Nothing else in the crate turns a value into bytes on disk, or back.
//!
//! One envelope serves all: a version byte, the fields as bincode 1 writes them (fixed-width
//! little-endian integers, lengths as u64), and a CRC-32 over the row's own number and everything
//! before the CRC. Trailing bytes are refused. `docs/FORMAT.md` draws it.

use bincode::Options as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::clock::Stamp;
use crate::engine::event::{Entry, Event, Head};
use crate::error::{Error, ErrorKind, Result};

/// The version of every envelope that this code writes.
pub(crate) const VERSION: u8 = 1;

/// Nothing sealed is larger; a length field that says otherwise is damage, not an allocation.
const SEALED_BYTES_MAX: u64 = 512 << 20;

const CRC_BYTES: usize = 4;

fn options() -> impl bincode::Options {
    // A limit makes writing walk every value twice, to measure it first; only reading needs one.
    bincode::DefaultOptions::new().with_fixint_encoding().with_little_endian().reject_trailing_bytes()
}

/// What `meta` holds; written in every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub ledger_id: [u8; 16],
    pub epoch: u64,
    pub next_sequence: u64,
    pub count: u64,
    pub digest: u128,
    pub stamp: Stamp,
    /// The wall clock when the ledger was created, in milliseconds since 1970.
    pub created_ms: u64,
}

/// What the anchor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Anchor {
    pub state: AnchorState,
    pub ledger_id: [u8; 16],
    pub epoch: u64,
    pub boot_id: [u8; 16],
    pub next_sequence: u64,
    pub count: u64,
    pub digest: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AnchorState {
    /// The ledger file is being created; it may not be there yet.
    Creating,
    /// A process has, or had, the file open.
    Open,
    /// The file was closed in order.
    Clean,
}

/// The first record of a session file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionHead {
    pub ledger_id: [u8; 16],
    pub id: [u8; 16],
    pub boot_id: [u8; 16],
    pub pid: u32,
}

/// An outcome that a holder left in its session file, for whoever opens the ledger next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOutcome {
    pub key: [u8; 32],
    pub token: u64,
    pub settlement: LeftSettlement,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LeftSettlement {
    Done(LeftBody),
    Failed(LeftBody),
    Released(String),
    Uncertain(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftBody {
    pub kind: crate::outcome::Kind,
    pub error: bool,
    pub exit_code: Option<i32>,
    /// The body's full length; `bytes` is empty where it was over the limit.
    pub len: u64,
    pub stored: bool,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Seals one value: version, fields, CRC over `number` and both. Appends to `out`.
pub(crate) fn seal_into<T: Serialize>(out: &mut Vec<u8>, number: u64, value: &T) -> Result<()> {
    let start = out.len();
    out.push(VERSION);
    options()
        .serialize_into(&mut *out, value)
        .map_err(|error| Error::bad_input(format!("a record is too large to store: {error}")))?;
    // What could not be read again is not written.
    let len = out.len() - start;
    if len as u64 > SEALED_BYTES_MAX {
        out.truncate(start);
        return Err(Error::bad_input(format!("a record of {len} bytes is too large to store")));
    }
    let crc = out.get(start..).map_or(0, |bytes| checksum(number, bytes));
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Seals one value into its own bytes.
pub(crate) fn seal<T: Serialize>(number: u64, value: &T) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    seal_into(&mut out, number, value)?;
    Ok(out)
}

/// Opens what [`seal`] made, or says what is wrong with it.
pub(crate) fn open<T: DeserializeOwned>(what: &str, number: u64, bytes: &[u8]) -> Result<T> {
    let split = bytes.len().checked_sub(CRC_BYTES).and_then(|at| bytes.split_at_checked(at));
    let Some((sealed, crc)) = split else {
        return Err(Error::damaged(format!("{what} is cut short ({} bytes)", bytes.len())));
    };
    if crc != checksum(number, sealed).to_le_bytes() {
        return Err(Error::damaged(format!("{what} does not have the checksum it was written with")));
    }
    match sealed.split_first() {
        Some((&VERSION, fields)) => options()
            .with_limit(SEALED_BYTES_MAX)
            .deserialize(fields)
            .map_err(|error| Error::damaged(format!("{what} does not decode: {error}"))),
        Some((&newer, _)) if newer > VERSION => Err(Error::new(
            ErrorKind::NewerFormat,
            format!("{what} has format version {newer}; this program reads up to {VERSION}"),
        )
        .next("open it with the newer onceledger that wrote it")),
        Some((&other, _)) => Err(Error::damaged(format!("{what} has format version {other}"))),
        None => Err(Error::damaged(format!("{what} is empty"))),
    }
}

/// The CRC-32 of a row, bound to its number, so that a row in another's place is seen.
pub(crate) fn checksum(number: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if !cfg!(onceledger_canary = "crc_without_key") {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(bytes);
    hasher.finalize()
}

/// The CRC-32 of an outcome's body.
pub(crate) fn body_checksum(body: &[u8]) -> u32 {
    crc32fast::hash(body)
}

/// What one row adds to the digest of the log.
pub(crate) fn row_digest(sequence: u64, row: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(row, sequence)
}

/// Appends one sealed row of the log.
pub(crate) fn seal_event(out: &mut Vec<u8>, sequence: u64, head: &Head, event: &Event) -> Result<()> {
    seal_into(out, sequence, &(head, event))
}

/// Opens one row of the log.
pub(crate) fn open_event(sequence: u64, row: &[u8]) -> Result<Entry> {
    let open: Result<(Head, Event)> = open("an event", sequence, row);
    let (head, event) = open.map_err(|error| at_sequence(error, sequence))?;
    Ok(Entry { head, event })
}

fn at_sequence(error: Error, sequence: u64) -> Error {
    Error::new(error.kind(), format!("log sequence {sequence}: {error}"))
}

/// One record of a session file: its length, then the sealed value. Its number is its place.
pub(crate) fn frame<T: Serialize>(place: u64, value: &T) -> Result<Vec<u8>> {
    let sealed = seal(place, value)?;
    let mut out = (sealed.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(&sealed);
    Ok(out)
}

/// Splits the frame at `place` off a session file's bytes; `None` where it is torn or the end.
pub(crate) fn unframe<T: DeserializeOwned>(bytes: &[u8], place: u64) -> Option<(T, u64)> {
    let rest = bytes.get(usize::try_from(place).ok()?..)?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(*len);
    let sealed = rest.get(..usize::try_from(len).ok()?)?;
    let value = open("a session record", place, sealed).ok()?;
    Some((value, place.checked_add(8)?.checked_add(len)?))
}

/// Appends a body as it lies in `outcomes`: the bytes, then a CRC over the row's number and them.
pub(crate) fn seal_body(number: u64, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(body);
    out.extend_from_slice(&checksum(number, body).to_le_bytes());
}

/// The bytes of a body's row, or what is wrong with it.
pub(crate) fn open_body(number: u64, row: &[u8]) -> Result<&[u8]> {
    let split = row.len().checked_sub(CRC_BYTES).and_then(|at| row.split_at_checked(at));
    match split {
        Some((body, crc)) if crc == checksum(number, body).to_le_bytes() => Ok(body),
        Some(_) | None => Err(Error::damaged(format!("outcome {number} does not have the bytes it was written with"))),
    }
}
