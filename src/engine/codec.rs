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
use crate::engine::event::{Body, End, Entry, Event, GrantEvent, Head, Place, RecoveryRule, SettleEvent, Terms};
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::Kind;

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
    pub kind: Kind,
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

/// Opens one row as a scan needs it: texts are checked and left empty. Rows of claims, nearly all
/// there are, are read field by field here; every other row, and every one that is not as it
/// should be, is [`open_event`]'s, so that both accept the same bytes with the same words.
pub(crate) fn scan_event(sequence: u64, row: &[u8]) -> Result<Entry> {
    match plain_event(sequence, row) {
        Some(entry) => Ok(entry),
        None => open_event(sequence, row),
    }
}

fn plain_event(sequence: u64, row: &[u8]) -> Option<Entry> {
    const GRANT: u32 = 1;
    const SETTLE: u32 = 3;
    let (sealed, crc) = row.split_at_checked(row.len().checked_sub(CRC_BYTES)?)?;
    let mut fields = Fields(sealed);
    if fields.byte()? != VERSION || sealed.len() as u64 > SEALED_BYTES_MAX {
        return None;
    }
    let head = Head { token: fields.u64()?, prev: fields.u64()?, late_ms: fields.u64()?, wall_ms: fields.u64()? };
    let event = match fields.u32()? {
        GRANT => Event::Grant(fields.grant()?),
        SETTLE => Event::Settle(fields.settle()?),
        _ => return None,
    };
    let whole = fields.0.is_empty() && crc == checksum(sequence, sealed).to_le_bytes();
    whole.then_some(Entry { head, event })
}

/// What is left of a row's fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn grant(&mut self) -> Option<GrantEvent> {
        let grant = GrantEvent {
            key: self.array()?,
            fingerprint: self.array()?,
            args: self.array()?,
            canonical: self.byte()?,
            session: self.u64()?,
            attempt: self.u32()?,
            first_attempt_ms: self.u64()?,
            lease_until_ms: self.u64()?,
            terms: Terms { keep_s: self.u32()?, remember_s: self.u32()?, recovery: self.rule()? },
            resumed: self.flag()?,
            scope: String::new(),
            label: String::new(),
        };
        let (_scope, _label) = (self.text()?, self.text()?);
        Some(grant)
    }

    fn rule(&mut self) -> Option<RecoveryRule> {
        match self.u32()? {
            0 => Some(RecoveryRule::Hold),
            1 => Some(RecoveryRule::Reconcile),
            2 => self.u32().map(RecoveryRule::Resend),
            _ => None,
        }
    }

    fn settle(&mut self) -> Option<SettleEvent> {
        let key = self.array()?;
        let end = match self.u32()? {
            0 => End::Done,
            1 => End::Failed,
            _ => return None,
        };
        Some(SettleEvent { key, end, body: self.body()? })
    }

    fn body(&mut self) -> Option<Body> {
        let kind = match self.u32()? {
            0 => Kind::Json,
            1 => Kind::Text,
            2 => Kind::Binary,
            _ => return None,
        };
        let (error, len, crc) = (self.flag()?, self.u64()?, self.u32()?);
        let place = match self.u32()? {
            0 => Place::Nowhere,
            1 => Place::Here,
            2 => Place::At(self.u64()?),
            _ => return None,
        };
        let exit_code = if self.flag()? { Some(i32::from_le_bytes(self.array()?)) } else { None };
        Some(Body { kind, error, len, crc, place, exit_code })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{
        AdoptedEvent, ApprovalEvent, ApprovalLine, ApprovalWhat, CellEvent, DecisionRule, DoubtEvent, LateEvent,
        MovedEvent, Reason, ReleaseEvent, RenewEvent, ResolveEvent, SessionEvent, StandingRule, Told, ToldWhat,
        VerdictRule,
    };

    const SEQUENCE: u64 = 77;

    /// Every kind of row that a scan reads, the two that it reads by itself in every shape.
    fn events() -> Vec<Event> {
        let key = [7; 32];
        let body = |place, exit_code| Body { kind: Kind::Text, error: true, len: 9, crc: 8, place, exit_code };
        let bodies = [
            body(Place::Nowhere, None),
            body(Place::Here, Some(-1)),
            Body { kind: Kind::Binary, error: false, ..body(Place::At(5), Some(3)) },
            Body::NONE,
        ];
        let rules = [RecoveryRule::Hold, RecoveryRule::Reconcile, RecoveryRule::Resend(60)];
        let grants = rules.into_iter().zip(["", "acme/support", "müde"]).map(|(recovery, text)| {
            Event::Grant(GrantEvent {
                key,
                fingerprint: [1; 32],
                args: [2; 32],
                canonical: 1,
                session: 3,
                attempt: 4,
                first_attempt_ms: 5,
                lease_until_ms: u64::MAX,
                terms: Terms { keep_s: 6, remember_s: u32::MAX, recovery },
                resumed: !text.is_empty(),
                scope: text.to_owned(),
                label: text.repeat(3),
            })
        });
        let settles = bodies.into_iter().zip([End::Done, End::Failed, End::Done, End::Failed]);
        let settles = settles.map(|(body, end)| Event::Settle(SettleEvent { key, end, body }));
        let text = || "why".to_owned();
        let resolve =
            ResolveEvent { key, verdict: VerdictRule::Done, body: bodies[1], by: text(), why: text(), forced: true };
        let others = [
            Event::Session(SessionEvent { number: 1, id: [1; 16], boot_id: [2; 16], pid: 3 }),
            Event::Renew(RenewEvent { key, lease_until_ms: 1 }),
            Event::Release(ReleaseEvent { key, why: text() }),
            Event::Doubt(DoubtEvent { key, reason: Reason::Panicked, why: text() }),
            Event::Resolve(resolve),
            Event::Late(LateEvent { key, end: None, body: bodies[0] }),
            Event::Adopted(AdoptedEvent { epoch: 2, by: text(), why: text() }),
            Event::Cell(CellEvent { name: text(), version: 4, value: Some(bodies[2]) }),
            Event::Approval(Box::new(ApprovalEvent {
                id: 5,
                key,
                args: [2; 32],
                deadline_ms: 6,
                remember_s: 7,
                decision: DecisionRule::Approved,
                spent_by: 8,
                changed_ms: 9,
                shown: bodies[1],
                scope: text(),
                label: text(),
                lines: vec![ApprovalLine { what: ApprovalWhat::Spent, token: 8, wall_ms: 1, by: text(), why: text() }],
            })),
        ];
        let events: Vec<Event> = grants.chain(settles).chain(others).collect();
        let told = |what| Told { token: 3, what, wall_ms: 4, by: text(), why: text(), body: Some(bodies[1]) };
        let moved = events.iter().filter_map(|event| match event {
            Event::Grant(grant) => Some(Event::Moved(Box::new(MovedEvent {
                grant: grant.clone(),
                standing: StandingRule::Uncertain(Reason::HolderGone),
                at_ms: 1,
                since_ms: 2,
                body: bodies[2],
                history: vec![told(ToldWhat::Granted), told(ToldWhat::Uncertain(Reason::Dropped))],
            }))),
            _ => None,
        });
        moved.chain(events.iter().cloned()).collect()
    }

    /// Both readers must give the same entry, texts of a grant aside, or the same error.
    fn check(row: &[u8]) -> bool {
        let whole = open_event(SEQUENCE, row).map(|mut entry| {
            if let Event::Grant(grant) = &mut entry.event {
                grant.scope.clear();
                grant.label.clear();
            }
            entry
        });
        match (whole, scan_event(SEQUENCE, row)) {
            (Ok(whole), Ok(scanned)) => assert_eq!(whole, scanned),
            (Err(whole), Err(scanned)) => assert_eq!(whole.to_string(), scanned.to_string()),
            (whole, scanned) => panic!("{whole:?} is not {scanned:?} for {row:?}"),
        }
        plain_event(SEQUENCE, row).is_some()
    }

    /// The fields of a row under a checksum that is right.
    fn sealed(fields: &[u8]) -> Vec<u8> {
        [fields, &checksum(SEQUENCE, fields).to_le_bytes()].concat()
    }

    #[test]
    fn a_scan_reads_what_everybody_reads() {
        let (mut cases, mut plain) = (0, 0);
        let mut case = |row: &[u8]| {
            cases += 1;
            plain += u32::from(check(row));
        };
        let head = Head { token: 1, prev: 2, late_ms: 3, wall_ms: 4 };
        for event in events() {
            let mut row = Vec::new();
            seal_event(&mut row, SEQUENCE, &head, &event).unwrap();
            case(&row);
            let by_field = matches!(event, Event::Grant(_) | Event::Settle(_));
            assert_eq!(plain_event(SEQUENCE, &row).is_some(), by_field, "nearly all rows are read fast: {event:?}");
            let fields = &row[..row.len() - CRC_BYTES];
            for at in 0..fields.len() {
                case(&row[..at]);
                case(&sealed(&fields[..at]));
                for value in [0, 1, 2, 3, 4, 0x7f, 0x80, 0xff] {
                    let mut changed = fields.to_vec();
                    changed[at] = value;
                    case(&sealed(&changed));
                    changed.push(0);
                    case(&sealed(&changed));
                }
            }
        }
        for seed in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/codec")).into_iter().flatten() {
            let bytes = std::fs::read(seed.unwrap().path()).unwrap();
            case(&bytes);
            case(&sealed(&bytes));
        }
        println!("{cases} rows, {plain} of them read field by field");
        assert!(cases > 30_000 && plain > 5_000, "{cases} rows, {plain} of them read field by field");
    }

    /// The CRC of FORMAT.md, by hand.
    fn crc(number: u64, bytes: &[u8]) -> [u8; 4] {
        crc32fast::hash(&[&number.to_le_bytes(), bytes].concat()).to_le_bytes()
    }

    #[test]
    fn an_envelope_is_a_version_the_fields_and_a_crc_over_the_number_and_both() {
        let fields = [1, 5, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xc3, 0xa9];
        let whole = [&fields[..], &crc(7, &fields)].concat();
        assert_eq!(seal(7, &(5_u32, "é")).unwrap(), whole);
        let mut out = vec![9, 9];
        seal_into(&mut out, 7, &(5_u32, "é")).unwrap();
        assert_eq!(out, [&[9, 9], &whole[..]].concat(), "appended to what is there");

        let read = |number, bytes: &[u8]| open::<(u32, String)>("a thing", number, bytes);
        assert_eq!(read(7, &whole).unwrap(), (5, "é".to_owned()));
        assert!(read(8, &whole).unwrap_err().is_damaged(), "another row's bytes");
        for at in 0..whole.len() {
            assert!(read(7, &whole[..at]).unwrap_err().is_damaged(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(7, &flipped).unwrap_err().is_damaged(), "bit {bit} of byte {at}");
            }
        }
        let sealed = |fields: &[u8]| [fields, &crc(7, fields)].concat();
        assert!(read(7, &sealed(&[&fields[..], &[0]].concat())).unwrap_err().is_damaged(), "one byte more");
        assert!(read(7, &sealed(&[])).unwrap_err().is_damaged(), "nothing under a right CRC");
        let of_version = |version: u8| [&[version], &fields[1..]].concat();
        assert_eq!(read(7, &sealed(&of_version(0))).unwrap_err().kind(), ErrorKind::Damaged);
        for newer in [2, 3, 255] {
            let error = read(7, &sealed(&of_version(newer))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NewerFormat);
            assert!(error.to_string().contains(&format!("version {newer}; this program reads up to 1")), "{error}");
        }
    }

    #[test]
    fn a_frame_is_found_at_its_own_place_whole_or_not_at_all() {
        let first = frame(0, &11_u32).unwrap();
        let place = first.len() as u64;
        assert_eq!(first[..8], 9_u64.to_le_bytes(), "version, four bytes, CRC");
        assert_eq!(first[8..], seal(0, &11_u32).unwrap());
        let both = [&first[..], &frame(place, &22_u32).unwrap()].concat();
        assert_eq!(unframe(&both, 0), Some((11_u32, place)));
        assert_eq!(unframe(&both, place), Some((22_u32, both.len() as u64)));
        assert_eq!(unframe::<u32>(&both, both.len() as u64), None, "the end");
        assert_eq!(unframe::<u32>(&both, u64::MAX), None);
        for at in 0..both.len() {
            assert_eq!(unframe::<u32>(&both[..at], place), None, "torn at {at}");
            assert_eq!(unframe::<u32>(&both[..at], 0).is_some(), at >= first.len(), "torn at {at}");
        }
        let elsewhere = [&first[..], &frame(place + 1, &22_u32).unwrap()].concat();
        assert_eq!(unframe::<u32>(&elsewhere, place), None, "of another place");
        assert_eq!(unframe::<u32>(&u64::MAX.to_le_bytes(), 0), None, "a length that is not there");
    }

    #[test]
    fn a_body_is_its_bytes_and_a_crc_over_its_number_and_them() {
        for body in [&b""[..], b"outcome"] {
            let mut row = Vec::new();
            seal_body(7, body, &mut row);
            assert_eq!(row, [body, &crc(7, body)].concat());
            assert_eq!(open_body(7, &row).unwrap(), body);
            assert!(open_body(8, &row).unwrap_err().is_damaged());
            for at in 0..row.len() {
                assert!(open_body(7, &row[..at]).unwrap_err().is_damaged());
            }
        }
    }

    #[test]
    fn checksums_are_the_ones_that_the_format_names() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(body_checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(row_digest(7, b"row"), xxhash_rust::xxh3::xxh3_128_with_seed(b"row", 7));
        assert_ne!(row_digest(7, b"row"), row_digest(8, b"row"));
    }

    #[test]
    fn an_unreadable_row_says_which_it_is() {
        let error = open_event(SEQUENCE, &[1, 2, 3]).unwrap_err();
        assert!(error.is_damaged() && error.to_string().contains("log sequence 77"), "{error}");
    }
}
