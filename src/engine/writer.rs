//! The writer: decides queued requests in order against the index and the batch so far, writes the
//! batch in one commit, publishes it, and only then lets anybody know (P1, P3, P13).
//!
//! Order of one batch: read the times; decide each request and append its events; commit; anchor
//! where that is due; publish to the index; put the pen down; answer. A failure at the commit or
//! after it leaves the batch unknown and closes the ledger; one before it leaves nothing.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::codec::{Anchor, AnchorState, Meta};
use crate::engine::core::Core;
use crate::engine::event::{Entry, SessionEvent};
use crate::engine::expiry::Due;
use crate::engine::index::{KeyDigest, SlotId};
use crate::engine::maps::{DigestMap, DigestSet, TokenMap};
use crate::engine::request::{Answered, Reply, Request, Work};
use crate::engine::side::{self, SideBatch};
use crate::engine::state::{Record, Stored};
use crate::engine::store::Batch;
use crate::engine::turn::Turn;
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::outcome::Outcome;

/// A session that the log knows.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub event: SessionEvent,
    /// How many claims are open under it, in progress or uncertain.
    pub open: u64,
}

/// What the holder of the pen writes with.
pub(crate) struct Pen {
    pub meta: Meta,
    /// Claims in progress or uncertain.
    pub open: TokenMap<KeyDigest>,
    pub sessions: BTreeMap<u64, SessionRow>,
    /// The rows of the file's adoptions, by the epoch that began with each.
    pub adoptions: BTreeMap<u64, Entry>,
    /// This process's session in the log; 0 before its first grant.
    pub own: u64,
    pub due: Due,
    /// Rows of the log that nothing needs any more.
    pub garbage: u64,
    /// What the anchor last said, and when that was by the boot-time clock.
    pub anchored: Meta,
    pub anchored_ms: u64,
    /// How many requests the last batch had.
    pub requests: usize,
    pub waiting: DigestMap<VecDeque<Request>>,
    pub probing: DigestSet,
    pub side: SideBatch,
    pub batch: Batch,
    pub overlay: DigestMap<Option<Record>>,
}

/// The anchor is written at least this often while commits happen.
pub(crate) const ANCHOR_EVERY_MS: u64 = 1000;

/// Whether commits record redb's allocator state. An open that verifies every page rebuilds it
/// anyway, so that nothing would be won (`docs/ARCHITECTURE.md` has the measurements).
const QUICK_REPAIR: bool = false;

/// A batch takes no more requests once its rows and bodies have this many bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;

impl Pen {
    pub fn new(meta: Meta) -> Self {
        Pen {
            meta,
            open: TokenMap::default(),
            sessions: BTreeMap::new(),
            adoptions: BTreeMap::new(),
            own: 0,
            due: Due::default(),
            garbage: 0,
            anchored: meta,
            anchored_ms: 0,
            requests: 0,
            waiting: DigestMap::default(),
            probing: DigestSet::default(),
            side: SideBatch::default(),
            batch: Batch::default(),
            overlay: DigestMap::default(),
        }
    }

    /// The anchor for what is committed.
    pub fn anchor(&self, state: AnchorState, boot_id: [u8; 16]) -> Anchor {
        anchor_of(&self.meta, state, boot_id)
    }

    /// Everybody who waits, for the end of the ledger.
    pub fn drain_waiting(&mut self) -> Vec<Request> {
        self.waiting.drain().flat_map(|(_, queue)| queue).collect()
    }
}

pub(crate) fn anchor_of(meta: &Meta, state: AnchorState, boot_id: [u8; 16]) -> Anchor {
    Anchor {
        state,
        ledger_id: meta.ledger_id,
        epoch: meta.epoch,
        boot_id,
        next_sequence: meta.next_sequence,
        count: meta.count,
        digest: meta.digest,
    }
}

/// Answers to give once the pen is down.
#[derive(Default)]
pub(crate) struct Answers {
    answers: Vec<(Request, Answered)>,
    /// Outcomes to be cached, with the slot and the row of each.
    bodies: Vec<(SlotId, u64, Outcome)>,
}

impl Answers {
    fn for_batch(requests: usize) -> Self {
        Answers { answers: Vec::with_capacity(requests), bodies: Vec::new() }
    }

    /// The requests without their answers, which turned out wrong.
    fn into_requests(self) -> impl Iterator<Item = Request> {
        self.answers.into_iter().map(|(request, _)| request)
    }

    pub fn push(&mut self, request: Request, answer: Answered) {
        self.answers.push((request, answer));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Fills the cells and wakes whoever waits. Under no lock.
    pub fn give(self, core: &Core) {
        for (request, answer) in self.answers {
            let Some(cell) = &request.cell else { continue };
            match cell.fill(answer) {
                Ok(Some(waker)) => core.wake(waker),
                Ok(None) => {}
                Err(undelivered) => core.give_back(undelivered),
            }
        }
        // Last, for nobody waits for it: until then a repeat reads its outcome from the file.
        for (slot, row, body) in self.bodies {
            core.cache(slot, row, body);
        }
    }
}

/// What a decided request leads to.
pub(crate) enum Decided {
    Answer(Reply),
    /// The claimer waits.
    Park,
}

/// Writes one batch. `requests` is what was in line when the pen was taken.
///
/// A panic, in the ledger or in a disk or clock that it was given, may leave a batch on disk that memory
/// knows nothing of: it closes the ledger as a failed commit does, and nobody is left waiting.
pub(crate) fn write(core: &Core, pen: &mut Pen, requests: Vec<Request>) -> Answers {
    let waiting: Vec<_> = requests.iter().map(|request| request.cell.clone()).collect();
    catch_unwind(AssertUnwindSafe(|| write_batch(core, pen, requests))).unwrap_or_else(|panic| {
        let batch = waiting.into_iter().filter(Option::is_some).map(Request::lost);
        fail(core, pen, &panicked(&*panic), ErrorKind::Unknown, batch.collect())
    })
}

/// A panic as the failure that closes the ledger.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Storage, format!("the ledger panicked: {}", panic_text(panic))).next(
        "open it again; it is a fault of the ledger, or of a disk or clock that it was given, so please report it",
    )
}

fn write_batch(core: &Core, pen: &mut Pen, requests: Vec<Request>) -> Answers {
    let mut answers = Answers::for_batch(requests.len());
    if let Err(error) = core.check_writable() {
        for request in requests {
            answers.push(request, Err(error.again(error.kind())));
        }
        return answers;
    }
    let (now, stamp) = core.times.stamp();
    pen.requests = requests.len();
    let mut requests = VecDeque::from(requests);
    let mut turn = Turn::alone(core, pen, now);
    while let Some(mut request) = requests.pop_front() {
        if is_abandoned(&request) {
            continue;
        }
        let before = turn.pen.batch.bytes();
        match turn.decide(&mut request) {
            Ok(Decided::Answer(reply)) => answers.push(request, Ok(reply)),
            Ok(Decided::Park) => turn.park(request),
            // What an error cut off half-way is not committed, whatever the error.
            Err(error) if is_fatal(&error) || turn.pen.batch.bytes() != before => {
                let rest = answers.into_requests().chain([request]).chain(requests);
                return fail(core, pen, &error, ErrorKind::Storage, rest.collect());
            }
            Err(error) => answers.push(request, Err(error)),
        }
        if turn.pen.batch.bytes() > BATCH_BYTES_MAX && !requests.is_empty() {
            core.line.push_front(std::mem::take(&mut requests).into_iter());
        }
    }
    let woken = std::mem::take(&mut turn.woken);
    if cfg!(onceledger_canary = "publish_before_commit") {
        for (key, record) in &pen.overlay {
            _ = core.index.apply(key, |_| *record);
        }
    }
    if !pen.batch.is_empty()
        && let Err(error) = commit(core, pen, stamp)
    {
        return fail(core, pen, &error, ErrorKind::Unknown, answers.into_requests().collect());
    }
    answers.bodies = publish(core, pen);
    wake_waiting(core, pen, woken);
    answers
}

/// Whether a claimer has left: what nobody takes is not granted in the first place. Nor are the cells
/// of its transaction written, which no release would put back.
fn is_abandoned(request: &Request) -> bool {
    let claims = matches!(request.work, Work::Claim(_) | Work::Transaction(_));
    claims && request.cell.as_ref().is_some_and(|cell| !cell.is_waited_for())
}

/// Whether the ledger can go on after this error.
pub(crate) fn is_fatal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Storage | ErrorKind::Unknown | ErrorKind::Damaged | ErrorKind::Unsupported | ErrorKind::Missing
    )
}

fn commit(core: &Core, pen: &mut Pen, stamp: crate::engine::clock::Stamp) -> Result<()> {
    let store = core.store()?;
    pen.meta.stamp = stamp;
    if !pen.batch.has_rows() {
        // Two commits never have the same number: the anchor tells them apart by it.
        pen.meta.next_sequence += 1;
    }
    store.commit(&pen.batch, &pen.meta, QUICK_REPAIR)?;
    let now_ms = stamp.boot_ms;
    if now_ms.saturating_sub(pen.anchored_ms) >= ANCHOR_EVERY_MS || now_ms < pen.anchored_ms {
        write_anchor(core, pen, now_ms)?;
    }
    Ok(())
}

/// Writes the anchor after its commit: it may lag, never lead.
pub(crate) fn write_anchor(core: &Core, pen: &mut Pen, now_ms: u64) -> Result<()> {
    core.anchor.write(&pen.anchor(AnchorState::Open, core.boot_id))?;
    pen.anchored = pen.meta;
    pen.anchored_ms = now_ms;
    Ok(())
}

/// Makes the batch visible: to the index and to the due queue. Gives back the outcomes to be cached.
fn publish(core: &Core, pen: &mut Pen) -> Vec<(SlotId, u64, Outcome)> {
    let mut bodies = Vec::with_capacity(pen.overlay.len());
    for (key, record) in pen.overlay.drain() {
        let Some(record) = record else { continue };
        let settled = matches!(record.standing, Stored::Done | Stored::Failed);
        let body = if settled { pen.batch.body(record.link) } else { None };
        let mut before = None;
        let put = core.index.apply(&key, |old| {
            before = old;
            Some(record)
        });
        let Some((slot, _)) = put else { continue };
        if let Some(body) = body {
            bodies.push((slot, record.link, body));
        }
        // A key that was only moved is in its queue already.
        let same =
            |old: Record| (old.standing, old.at, old.remember_s) == (record.standing, record.at, record.remember_s);
        if !before.is_some_and(same) {
            pen.due.settled(slot, &record);
        }
    }
    side::publish(&core.side, &mut pen.side);
    pen.batch.clear();
    bodies
}

/// Puts whoever waits for a changed key back at the front of the line.
fn wake_waiting(core: &Core, pen: &mut Pen, keys: Vec<KeyDigest>) {
    if pen.waiting.is_empty() {
        return;
    }
    for key in keys {
        if let Some(queue) = pen.waiting.remove(&key) {
            core.line.push_front(queue.into_iter());
        }
    }
}

/// Closes the ledger after a storage failure: the batch gets `kind`, everybody else in line or
/// waiting was not attempted.
pub(crate) fn fail(core: &Core, pen: &mut Pen, error: &Error, kind: ErrorKind, batch: Vec<Request>) -> Answers {
    core.let_go(error);
    pen.batch.clear();
    pen.overlay.clear();
    pen.side = SideBatch::default();
    let mut answers = Answers::default();
    for request in batch {
        let kind = if kind == ErrorKind::Unknown { kind } else { error.kind() };
        answers.push(request, Err(error.again(kind)));
    }
    let mut rest = core.line.take();
    while !rest.is_empty() {
        for request in rest {
            answers.push(request, Err(error.again(ErrorKind::Storage)));
        }
        rest = core.line.take();
    }
    for request in pen.drain_waiting() {
        answers.push(request, Err(error.again(ErrorKind::Storage)));
    }
    answers
}

impl Turn<'_> {
    /// Commits what this turn has appended, and publishes it.
    pub fn finish(self, stamp: crate::engine::clock::Stamp) -> Result<()> {
        let Turn { core, pen, .. } = self;
        if !pen.batch.is_empty() {
            commit(core, pen, stamp)?;
        }
        publish(core, pen);
        Ok(())
    }
}
