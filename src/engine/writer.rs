//! The writer: decides queued requests in order against the index and the batch so far, writes the
//! batch in one commit, publishes it, and only then lets anybody know (P1, P3, P13).
//!
//! Order of one batch: read the times; decide each request and append its events; commit; anchor
//! where that is due; publish to the index; put the pen down; answer. A failure at the commit or
//! after it leaves the batch unknown and closes the ledger; one before it leaves nothing.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

use crate::engine::clock::Now;
use crate::engine::codec::{self, Anchor, AnchorState, LeftOutcome, LeftSettlement, Meta};
use crate::engine::core::Core;
use crate::engine::event::{
    Body, DoubtEvent, End, Entry, Event, FOREVER, GrantEvent, Head, LateEvent, Place, Reason, ReleaseEvent, RenewEvent,
    ResolveEvent, SessionEvent, SettleEvent, Terms, ToldWhat, VerdictRule,
};
use crate::engine::expiry::{Due, Swept};
use crate::engine::index::KeyDigest;
use crate::engine::line::Cell;
use crate::engine::replay;
use crate::engine::session::{self, Sight};
use crate::engine::state::{self, Ask, Decision, Holder, Probe, Record, Seen, Stored};
use crate::engine::store::{Batch, Store};
use crate::engine::sync::Arc;
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::Outcome;

/// Keys are digests and tokens are counters: their own bits serve as the hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnBits(u64);

impl Hasher for OwnBits {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn write_u64(&mut self, number: u64) {
        // The golden ratio spreads consecutive tokens over all bits.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Bits = BuildHasherDefault<OwnBits>;
pub(crate) type DigestMap<V> = HashMap<KeyDigest, V, Bits>;
pub(crate) type TokenMap<V> = HashMap<u64, V, Bits>;

/// A request in line.
pub(crate) struct Request {
    pub work: Work,
    /// Where the answer goes; `None` where nobody waits for one.
    pub cell: Option<Arc<Cell<Answered>>>,
}

pub(crate) type Answered = Result<Reply>;

/// What a request wants.
pub(crate) enum Work {
    Claim(Box<ClaimWork>),
    Settle(Box<SettleWork>),
    Renew {
        key: KeyDigest,
        token: u64,
        lease_ms: u64,
    },
    Release {
        key: KeyDigest,
        token: u64,
        why: String,
    },
    Doubt {
        key: KeyDigest,
        token: u64,
        reason: Reason,
        why: String,
    },
    Resolve(Box<ResolveWork>),
    /// A probe's verdict and the prober's own claim, in one commit.
    Verdict(Box<VerdictWork>),
    /// A probe ended without a verdict.
    ProbeOver {
        key: KeyDigest,
    },
    /// Something about the key may have changed by itself: look at those who wait for it.
    Poke {
        key: KeyDigest,
    },
    /// A foreign session may have ended or left outcomes.
    Attend {
        session: u64,
    },
    /// Forget what is due, and clean the log.
    Sweep {
        limit: u64,
    },
}

pub(crate) struct ClaimWork {
    pub key: KeyDigest,
    pub fingerprint: [u8; 32],
    pub args: [u8; 32],
    pub lease_ms: Option<u64>,
    pub terms: Terms,
    pub has_probe: bool,
    /// Until when the claimer waits, by the boot-time clock; 0 for not at all.
    pub wait_until_ms: u64,
    pub scope: String,
    pub label: String,
}

/// An outcome made ready to be stored.
pub(crate) struct Prepared {
    pub body: Body,
    /// The bytes, where they are to be stored.
    pub outcome: Option<Outcome>,
}

pub(crate) struct SettleWork {
    pub key: KeyDigest,
    pub token: u64,
    pub end: End,
    pub prepared: Prepared,
}

pub(crate) struct ResolveWork {
    pub key: KeyDigest,
    pub token: u64,
    pub verdict: VerdictRule,
    pub prepared: Prepared,
    pub by: String,
    pub why: String,
    pub force: bool,
}

pub(crate) struct VerdictWork {
    pub claim: ClaimWork,
    pub token: u64,
    /// The outcome that the probe found; `None` where the effect was not applied.
    pub found: Option<Prepared>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Granted {
        token: u64,
        attempt: u32,
    },
    /// What stands there; `stored_rule`: a laxer claim was judged by the stored recovery rule.
    Stands {
        record: Option<Record>,
        seen: Seen,
        stored_rule: bool,
    },
    Mismatch(Record),
    /// The claimer is the one to probe the claim in doubt.
    Probe(Record),
    Applied,
    Same,
    Lost {
        record: Option<Record>,
        seen: Seen,
    },
    Swept(Swept),
}

/// A session that the log knows.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub event: SessionEvent,
    /// How many claims are open under it, in progress or uncertain.
    pub open: u64,
}

/// Somebody who waits for a key.
struct Waiting {
    request: Request,
}

/// What the holder of the pen writes with.
pub(crate) struct Pen {
    pub meta: Meta,
    /// Claims in progress or uncertain.
    pub open: TokenMap<KeyDigest>,
    pub sessions: BTreeMap<u64, SessionRow>,
    /// This process's session in the log; 0 before its first grant.
    pub own: u64,
    pub due: Due,
    /// Rows of the log that nothing needs any more.
    pub garbage: u64,
    /// What the anchor last said, and when that was by the boot-time clock.
    pub anchored: Meta,
    pub anchored_ms: u64,
    waiting: DigestMap<VecDeque<Waiting>>,
    probing: HashSet<KeyDigest, Bits>,
    batch: Batch,
    overlay: DigestMap<Option<Record>>,
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
            own: 0,
            due: Due::default(),
            garbage: 0,
            anchored: meta,
            anchored_ms: 0,
            waiting: DigestMap::default(),
            probing: HashSet::default(),
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
        self.waiting.drain().flat_map(|(_, queue)| queue).map(|waiting| waiting.request).collect()
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
pub(crate) struct Answers(Vec<(Request, Answered)>);

impl Answers {
    pub fn push(&mut self, request: Request, answer: Answered) {
        self.0.push((request, answer));
    }

    /// Fills the cells and wakes whoever waits. Under no lock.
    pub fn give(self, core: &Core) {
        for (request, answer) in self.0 {
            let Some(cell) = &request.cell else { continue };
            match cell.fill(answer) {
                Ok(Some(waker)) => core.wake(waker),
                Ok(None) => {}
                Err(undelivered) => core.untaken(&request.work, undelivered),
            }
        }
    }
}

/// What a decided request leads to.
enum Decided {
    Answer(Reply),
    /// The claimer waits.
    Park,
}

/// Writes one batch. `requests` is what was in line when the pen was taken.
pub(crate) fn write(core: &Core, pen: &mut Pen, requests: Vec<Request>) -> Answers {
    let mut answers = Answers::default();
    if let Err(error) = core.check_writable() {
        for request in requests {
            answers.push(request, Err(error.again(error.kind())));
        }
        return answers;
    }
    let (now, stamp) = core.times.stamp();
    let mut requests = VecDeque::from(requests);
    let mut changed = Vec::with_capacity(requests.len());
    let mut turn = Turn { core, pen, now, woken: Vec::new() };
    while let Some(request) = requests.pop_front() {
        if is_abandoned(&request) {
            continue;
        }
        match turn.decide(&request) {
            Ok(Decided::Answer(reply)) => changed.push((request, Ok(reply))),
            Ok(Decided::Park) => turn.park(request),
            Err(error) if is_fatal(&error) => {
                changed.push((request, Err(error.again(error.kind()))));
                let rest = changed.into_iter().map(|(request, _)| request).chain(requests);
                return fail(core, pen, &error, ErrorKind::Storage, rest.collect());
            }
            Err(error) => changed.push((request, Err(error))),
        }
        if turn.pen.batch.bytes() > BATCH_BYTES_MAX && !requests.is_empty() {
            core.line.push_front(std::mem::take(&mut requests).into_iter());
        }
    }
    let woken = std::mem::take(&mut turn.woken);
    if cfg!(onceledger_canary = "publish_before_commit") {
        for (key, record) in &pen.overlay {
            record.iter().for_each(|record| drop(core.index.put(key, *record, None)));
        }
    }
    if !pen.batch.is_empty()
        && let Err(error) = commit(core, pen, stamp)
    {
        let batch = changed.into_iter().map(|(request, _)| request).collect();
        return fail(core, pen, &error, ErrorKind::Unknown, batch);
    }
    publish(core, pen);
    wake_waiting(core, pen, woken);
    for (request, answer) in changed {
        answers.push(request, answer);
    }
    answers
}

/// Whether a claimer has left: what nobody takes is not granted in the first place.
fn is_abandoned(request: &Request) -> bool {
    let claims = matches!(request.work, Work::Claim(_));
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
    if pen.batch.rows().next().is_none() {
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

/// Makes the batch visible: to the index, to the due queue, to the body cache.
fn publish(core: &Core, pen: &mut Pen) {
    for (key, record) in pen.overlay.drain() {
        let Some(record) = record else { continue };
        let stored = record.link != 0 && matches!(record.standing, Stored::Done | Stored::Failed);
        let body = stored.then(|| pen.batch.bodies.iter().rev().find(|(row, _)| *row == record.link));
        let body = body.flatten().map(|(_, body)| body.clone());
        let bytes = body.as_ref().map_or(0, |body| body.body().len());
        let slot = core.index.put(&key, record, body);
        if bytes > 0 {
            core.cached(&key, record.link, bytes);
        }
        pen.due.settled(slot, &record);
    }
    pen.batch.clear();
}

/// Puts whoever waits for a changed key back at the front of the line.
fn wake_waiting(core: &Core, pen: &mut Pen, keys: Vec<KeyDigest>) {
    if pen.waiting.is_empty() {
        return;
    }
    for key in keys {
        if let Some(queue) = pen.waiting.remove(&key) {
            core.line.push_front(queue.into_iter().map(|waiting| waiting.request));
        }
    }
}

/// Closes the ledger after a storage failure: the batch gets `kind`, everybody else in line or
/// waiting was not attempted.
pub(crate) fn fail(core: &Core, pen: &mut Pen, error: &Error, kind: ErrorKind, batch: Vec<Request>) -> Answers {
    core.fail(error);
    pen.batch.clear();
    pen.overlay.clear();
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

/// One batch being decided.
pub(crate) struct Turn<'a> {
    pub core: &'a Core,
    pub pen: &'a mut Pen,
    pub now: Now,
    /// Keys whose standing changed and that somebody may wait for.
    woken: Vec<KeyDigest>,
}

impl<'a> Turn<'a> {
    /// A turn outside a batch of requests: what opening has to record.
    pub fn alone(core: &'a Core, pen: &'a mut Pen, now: Now) -> Self {
        Turn { core, pen, now, woken: Vec::new() }
    }

    /// Commits what this turn has appended, and publishes it.
    pub fn finish(self, stamp: crate::engine::clock::Stamp) -> Result<()> {
        let Turn { core, pen, .. } = self;
        if !pen.batch.is_empty() {
            commit(core, pen, stamp)?;
        }
        publish(core, pen);
        Ok(())
    }

    fn decide(&mut self, request: &Request) -> Result<Decided> {
        let answer = match &request.work {
            Work::Claim(claim) => return self.claim(claim, Probe::None),
            Work::Settle(work) => self.settle(&work.key, work.token, work.end, &work.prepared)?,
            Work::Renew { key, token, lease_ms } => self.renew(key, *token, *lease_ms)?,
            Work::Release { key, token, why } => self.release(key, *token, why)?,
            Work::Doubt { key, token, reason, why } => self.doubt(key, *token, *reason, why)?,
            Work::Resolve(work) => self.resolve(work)?,
            Work::Verdict(work) => return self.verdict(work),
            Work::ProbeOver { key } => {
                self.pen.probing.remove(key);
                Reply::Applied
            }
            Work::Poke { key } => {
                self.woken.push(*key);
                Reply::Applied
            }
            Work::Attend { session } => self.attend(*session)?,
            Work::Sweep { limit } => Reply::Swept(self.sweep(*limit)?),
        };
        Ok(Decided::Answer(answer))
    }

    /// The record of a key as the batch so far leaves it. A doubt that was marked in memory only
    /// is recorded first.
    pub fn load(&mut self, key: &KeyDigest) -> Result<Option<Record>> {
        if let Some(record) = self.pen.overlay.get(key) {
            return Ok(*record);
        }
        let Some(mut record) = self.core.index.get(key) else { return Ok(None) };
        if !record.form.is_marked() {
            return Ok(Some(record));
        }
        let Stored::Uncertain(reason) = record.standing else { return Ok(Some(record)) };
        record.form = record.form.unmarked();
        record.standing = Stored::InProgress;
        let event = Event::Doubt(DoubtEvent { key: *key, reason, why: String::new() });
        self.append(key, Some(record), record.token, event).map(Some)
    }

    /// Whether this batch has changed the key.
    pub fn is_changed(&self, key: &KeyDigest) -> bool {
        self.pen.overlay.contains_key(key)
    }

    /// Appends an event about a key and moves its record on.
    fn append(&mut self, key: &KeyDigest, record: Option<Record>, token: u64, event: Event) -> Result<Record> {
        let prev = record.map_or(0, |record| record.last);
        let (sequence, entry) = self.write_row(token, prev, event)?;
        let next = replay::apply(record, sequence, &entry);
        let next = next.ok_or_else(|| Error::damaged(format!("event {sequence} has no grant before it")))?;
        self.note_open(key, record, &next);
        if let Some(body) = entry.event.body() {
            self.pen.due.body(&next, body, sequence, self.now.late);
        }
        self.pen.overlay.insert(*key, Some(next));
        self.woken.push(*key);
        Ok(next)
    }

    /// Keeps the list of open claims in step with a record that changes.
    fn note_open(&mut self, key: &KeyDigest, before: Option<Record>, after: &Record) {
        let open = |record: &Record| matches!(record.standing, Stored::InProgress | Stored::Uncertain(_));
        if let Some(before) = before.filter(open)
            && (before.token != after.token || !open(after))
        {
            self.pen.open.remove(&before.token);
            if let Some(session) = self.pen.sessions.get_mut(&before.link) {
                session.open = session.open.saturating_sub(1);
            }
        }
        if open(after) && before.is_none_or(|before| !open(&before) || before.token != after.token) {
            self.pen.open.insert(after.token, *key);
            if let Some(session) = self.pen.sessions.get_mut(&after.link) {
                session.open += 1;
            }
        }
    }

    /// Puts a row at the end of the log.
    pub fn write_row(&mut self, token: u64, prev: u64, event: Event) -> Result<(u64, Entry)> {
        let sequence = self.pen.meta.next_sequence;
        let new = if cfg!(onceledger_canary = "reuse_a_token") { sequence & !15 } else { sequence };
        let token = if token == NEW_TOKEN { new } else { token };
        let head = Head { token, prev, late_ms: self.now.late, wall_ms: self.now.wall };
        let row = self.pen.batch.append(sequence, |out| codec::seal_event(out, sequence, &head, &event))?;
        let digest = codec::row_digest(sequence, row);
        self.pen.meta.next_sequence =
            sequence.checked_add(1).ok_or_else(|| Error::damaged("the log has no numbers left"))?;
        self.pen.meta.count += 1;
        self.pen.meta.digest = self.pen.meta.digest.wrapping_add(digest);
        Ok((sequence, Entry { head, event }))
    }

    /// Takes a row out of the log, with what it added to the digest.
    pub fn drop_row(&mut self, sequence: u64, row: &[u8]) {
        self.pen.batch.dead_rows.push(sequence);
        self.pen.meta.count = self.pen.meta.count.saturating_sub(1);
        self.pen.meta.digest = self.pen.meta.digest.wrapping_sub(codec::row_digest(sequence, row));
    }

    /// Takes bodies out whose retention has passed.
    pub fn drop_body(&mut self, row: u64) {
        self.pen.batch.dead_bodies.push(row);
    }

    /// Puts a record in place that was written again whole.
    pub fn replace(&mut self, key: &KeyDigest, sequence: u64, entry: &Entry) {
        let record = replay::apply(None, sequence, entry);
        self.pen.overlay.insert(*key, record);
    }

    /// Whether this batch has already written the key whole or changed it.
    pub fn row_in_batch(&self, sequence: u64) -> Option<&[u8]> {
        self.pen.batch.row(sequence)
    }

    /// Forgets a key whose retention has passed.
    pub fn forget(&mut self, key: &KeyDigest) {
        self.pen.overlay.remove(key);
        if let Some(record) = self.core.index.remove(key) {
            self.pen.garbage += u64::from(record.rows);
        }
    }

    fn holder(&self, record: &Record) -> Holder {
        if record.standing != Stored::InProgress || record.link == self.pen.own {
            Holder::Alive
        } else {
            Holder::Unknown
        }
    }

    /// The record of a key whose foreign holder was looked at afresh: outcomes it left are applied,
    /// and its end is recorded.
    fn load_afresh(&mut self, key: &KeyDigest) -> Result<(Option<Record>, Holder)> {
        let Some(record) = self.load(key)? else { return Ok((None, Holder::Unknown)) };
        let holder = self.holder(&record);
        if record.standing != Stored::InProgress || holder == Holder::Alive {
            return Ok((Some(record), holder));
        }
        let sight = self.look_at(record.link)?;
        for left in sight.left.iter().filter(|left| left.key == *key) {
            self.take_left(left)?;
        }
        let mut record = self.load(key)?;
        if let Some(open) = record.filter(|record| record.standing == Stored::InProgress)
            && sight.holder == Holder::Gone
        {
            let event = Event::Doubt(DoubtEvent { key: *key, reason: Reason::HolderGone, why: String::new() });
            record = Some(self.append(key, Some(open), open.token, event)?);
        }
        Ok((record, sight.holder))
    }

    fn look_at(&self, session: u64) -> Result<Sight> {
        let Some(row) = self.pen.sessions.get(&session) else {
            return Ok(Sight { holder: Holder::Unknown, left: Vec::new() });
        };
        let core = self.core;
        let sight = session::look(&*core.disk, &core.paths.sessions, &row.event.id, &row.event.boot_id, &core.boot_id)?;
        core.seen_session(session, sight.holder);
        Ok(sight)
    }

    /// Applies an outcome that a holder left in its session file, as that token's own settle.
    pub fn take_left(&mut self, left: &LeftOutcome) -> Result<()> {
        let (key, token) = (&left.key, left.token);
        match &left.settlement {
            LeftSettlement::Done(body) | LeftSettlement::Failed(body) => {
                let failed = matches!(left.settlement, LeftSettlement::Failed(_));
                let end = if failed { End::Failed } else { End::Done };
                let place = if body.stored { Place::Here } else { Place::Nowhere };
                let crc = codec::body_checksum(&body.bytes);
                let prepared = Prepared {
                    body: Body {
                        kind: body.kind,
                        error: body.error,
                        len: body.len,
                        crc,
                        place,
                        exit_code: body.exit_code,
                    },
                    outcome: body.stored.then(|| Outcome::new(body.kind, body.error, &body.bytes)),
                };
                self.settle(key, token, end, &prepared)?;
            }
            LeftSettlement::Released(why) => {
                self.release(key, token, why)?;
            }
            LeftSettlement::Uncertain(why) => {
                self.doubt(key, token, Reason::UnknownError, why)?;
            }
        }
        Ok(())
    }

    fn claim(&mut self, work: &ClaimWork, probe: Probe) -> Result<Decided> {
        let (record, holder) = self.load_afresh(&work.key)?;
        let probe = match (record, probe) {
            (Some(record), Probe::None) if work.has_probe && !self.pen.probing.contains(&work.key) => {
                Probe::Ready { not_before: record.at.saturating_add(self.core.settle_delay_ms) }
            }
            (_, probe) => probe,
        };
        let ask = Ask::Claim { fingerprint: work.fingerprint, rule: work.terms.recovery, probe };
        let decision = state::decide(record.as_ref(), &ask, self.now, holder);
        Ok(Decided::Answer(match decision {
            Decision::Grant { attempt, first_attempt_s, fresh, resumed } => {
                self.grant(work, record, fresh, attempt, first_attempt_s, resumed)?
            }
            Decision::Probe => match record {
                Some(record) => {
                    self.pen.probing.insert(work.key);
                    Reply::Probe(record)
                }
                None => Reply::Stands { record, seen: Seen::Vacant, stored_rule: false },
            },
            Decision::Mismatch => match record {
                Some(record) => Reply::Mismatch(record),
                None => Reply::Stands { record, seen: Seen::Vacant, stored_rule: false },
            },
            Decision::Stands(Seen::InProgress) if self.waits_on(work) => return Ok(Decided::Park),
            Decision::Stands(seen) => {
                let stored_rule = record.is_some_and(|record| record.rule.rule() < work.terms.recovery);
                Reply::Stands { record, seen, stored_rule }
            }
            Decision::Apply | Decision::Same | Decision::Lost | Decision::NoSuchGrant => {
                return Err(Error::damaged("a claim was judged as a settle"));
            }
        }))
    }

    fn waits_on(&self, work: &ClaimWork) -> bool {
        work.wait_until_ms > 0 && self.core.times.boot_ms() < work.wait_until_ms
    }

    fn grant(
        &mut self,
        work: &ClaimWork,
        record: Option<Record>,
        fresh: bool,
        attempt: u32,
        first_attempt_s: u32,
        resumed: bool,
    ) -> Result<Reply> {
        self.record_session()?;
        let before = if fresh { None } else { record };
        if fresh && let Some(old) = record {
            self.pen.garbage += u64::from(old.rows);
        }
        let lease = |lease_ms| self.now.early.saturating_add(lease_ms).min(FOREVER - 1);
        // A resend goes on under the rule that the key's first claim stored; only a vacant key takes a
        // new one.
        let stored = record.filter(|_| resumed).map(|record| record.rule.rule());
        let terms = Terms { recovery: stored.unwrap_or(work.terms.recovery), ..work.terms };
        let event = GrantEvent {
            key: work.key,
            fingerprint: work.fingerprint,
            args: work.args,
            canonical: crate::canonical::CANONICAL_VERSION,
            session: self.pen.own,
            attempt,
            first_attempt_ms: u64::from(first_attempt_s) * 1000,
            lease_until_ms: work.lease_ms.map_or(FOREVER, lease),
            terms,
            resumed,
            scope: work.scope.clone(),
            label: work.label.clone(),
        };
        let granted = self.append(&work.key, before, NEW_TOKEN, Event::Grant(event))?;
        Ok(Reply::Granted { token: granted.token, attempt })
    }

    /// Makes the session durable before its first grant: file, directory, and a row of the log.
    fn record_session(&mut self) -> Result<()> {
        if self.pen.own != 0 && self.core.session.has_begun() {
            return Ok(());
        }
        self.core.session.begin()?;
        if self.pen.own != 0 {
            return Ok(());
        }
        let head = self.core.session.head;
        let number = self.pen.meta.next_sequence;
        let event = SessionEvent { number, id: head.id, boot_id: head.boot_id, pid: head.pid };
        self.write_row(0, 0, Event::Session(event.clone()))?;
        self.pen.own = number;
        self.pen.sessions.insert(number, SessionRow { event: event.clone(), open: 0 });
        self.core.know_session(&event, true);
        Ok(())
    }

    fn settle(&mut self, key: &KeyDigest, token: u64, end: End, prepared: &Prepared) -> Result<Reply> {
        let record = self.load(key)?;
        let equal = self.says_the_same(record.as_ref(), token, end, &prepared.body)?;
        match state::decide(record.as_ref(), &Ask::Settle { token, equal }, self.now, Holder::Alive) {
            Decision::Apply => {
                self.store_body(prepared);
                self.append(key, record, token, Event::Settle(SettleEvent { key: *key, end, body: prepared.body }))?;
                Ok(Reply::Applied)
            }
            Decision::Lost => self.lost(key, record, token, Some(end), prepared),
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn store_body(&mut self, prepared: &Prepared) {
        if let Some(outcome) = &prepared.outcome {
            self.pen.batch.bodies.push((self.pen.meta.next_sequence, outcome.clone()));
        }
    }

    /// Keeps the late outcome of a holder that lost its claim, once per token (P4).
    fn lost(
        &mut self,
        key: &KeyDigest,
        record: Option<Record>,
        token: u64,
        end: Option<End>,
        prepared: &Prepared,
    ) -> Result<Reply> {
        let Some(record) = record else { return Ok(self.unmoved(None, Decision::NoSuchGrant)) };
        let late = |what: &ToldWhat| matches!(what, ToldWhat::LateDone | ToldWhat::LateFailed | ToldWhat::LateReleased);
        let chain = self.chain(&record)?;
        let known = chain.told().any(|told| told.token == token && told.what == ToldWhat::Granted);
        let recorded = chain.told().any(|told| told.token == token && late(&told.what));
        if known && !recorded {
            self.store_body(prepared);
            let event = LateEvent { key: *key, end, body: prepared.body };
            self.append(key, Some(record), token, Event::Late(event))?;
        }
        Ok(self.unmoved(Some(record), Decision::Lost))
    }

    fn unmoved(&self, record: Option<Record>, decision: Decision) -> Reply {
        let seen = record.map_or(Seen::Vacant, |record| record.seen(self.now, self.holder(&record)));
        match decision {
            Decision::Same => Reply::Same,
            Decision::Apply => Reply::Applied,
            Decision::Stands(seen) => Reply::Stands { record, seen, stored_rule: false },
            Decision::Lost | Decision::NoSuchGrant | Decision::Mismatch | Decision::Probe | Decision::Grant { .. } => {
                Reply::Lost { record, seen }
            }
        }
    }

    /// Whether a settled record under this token holds the same outcome.
    fn says_the_same(&mut self, record: Option<&Record>, token: u64, end: End, body: &Body) -> Result<bool> {
        let settled = match end {
            End::Done => Stored::Done,
            End::Failed => Stored::Failed,
        };
        let Some(record) = record.filter(|record| record.token == token && record.standing == settled) else {
            return Ok(false);
        };
        let stored = self.chain(record)?.settled_body();
        let plain = |body: &Body| Body { place: Place::Nowhere, ..*body };
        Ok(stored.is_some_and(|stored| plain(&stored) == plain(body)))
    }

    fn renew(&mut self, key: &KeyDigest, token: u64, lease_ms: u64) -> Result<Reply> {
        let record = self.load(key)?;
        match state::decide(record.as_ref(), &Ask::Renew { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let lease_until_ms = self.now.early.saturating_add(lease_ms).min(FOREVER - 1);
                self.append(key, record, token, Event::Renew(RenewEvent { key: *key, lease_until_ms }))?;
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn release(&mut self, key: &KeyDigest, token: u64, why: &str) -> Result<Reply> {
        let record = self.load(key)?;
        match state::decide(record.as_ref(), &Ask::Release { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let event = ReleaseEvent { key: *key, why: why.to_owned() };
                self.append(key, record, token, Event::Release(event))?;
                Ok(Reply::Applied)
            }
            Decision::Lost => self.lost(key, record, token, None, &Prepared { body: Body::NONE, outcome: None }),
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn doubt(&mut self, key: &KeyDigest, token: u64, reason: Reason, why: &str) -> Result<Reply> {
        let record = self.load(key)?;
        match state::decide(record.as_ref(), &Ask::Doubt { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let event = DoubtEvent { key: *key, reason, why: why.to_owned() };
                self.append(key, record, token, Event::Doubt(event))?;
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn resolve(&mut self, work: &ResolveWork) -> Result<Reply> {
        let (record, holder) = self.load_afresh(&work.key)?;
        let ask = Ask::Resolve { token: work.token, verdict: work.verdict, force: work.force };
        match state::decide(record.as_ref(), &ask, self.now, holder) {
            Decision::Apply => {
                self.store_body(&work.prepared);
                let event = ResolveEvent {
                    key: work.key,
                    verdict: work.verdict,
                    body: work.prepared.body,
                    by: work.by.clone(),
                    why: work.why.clone(),
                    forced: work.force,
                };
                self.append(&work.key, record, work.token, Event::Resolve(event))?;
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn verdict(&mut self, work: &VerdictWork) -> Result<Decided> {
        self.pen.probing.remove(&work.claim.key);
        let (record, holder) = self.load_afresh(&work.claim.key)?;
        let verdict = if work.found.is_some() { VerdictRule::Done } else { VerdictRule::NotDone };
        let ask = Ask::Resolve { token: work.token, verdict, force: false };
        if state::decide(record.as_ref(), &ask, self.now, holder) == Decision::Apply {
            let none = Prepared { body: Body::NONE, outcome: None };
            let prepared = work.found.as_ref().unwrap_or(&none);
            self.store_body(prepared);
            let event = ResolveEvent {
                key: work.claim.key,
                verdict,
                body: prepared.body,
                by: "probe".to_owned(),
                why: String::new(),
                forced: false,
            };
            self.append(&work.claim.key, record, work.token, Event::Resolve(event))?;
        }
        // A stale verdict changed nothing; the claim is judged by what stands now.
        self.claim(&work.claim, Probe::None)
    }

    /// Records a doubt about a claim that is in progress.
    pub fn record_doubt(&mut self, key: &KeyDigest, record: &Record, event: DoubtEvent) -> Result<()> {
        self.append(key, Some(*record), record.token, Event::Doubt(event)).map(drop)
    }

    /// Looks at a foreign session: takes what it left, and records its end for every open claim.
    fn attend(&mut self, session: u64) -> Result<Reply> {
        let sight = self.look_at(session)?;
        for left in &sight.left {
            self.take_left(left)?;
        }
        if sight.holder == Holder::Gone {
            self.end_session(session)?;
        }
        Ok(Reply::Applied)
    }

    /// Records that the holder of every open claim of a session is gone.
    pub fn end_session(&mut self, session: u64) -> Result<()> {
        let mut open: Vec<(u64, KeyDigest)> = self.pen.open.iter().map(|(token, key)| (*token, *key)).collect();
        // In the order of the grants: what is written must not depend on a hash table.
        open.sort_unstable();
        for (token, key) in open {
            let Some(record) = self.load(&key)? else { continue };
            if record.link == session && record.token == token && record.standing == Stored::InProgress {
                self.doubt(&key, token, Reason::HolderGone, "")?;
            }
        }
        Ok(())
    }

    fn park(&mut self, request: Request) {
        let Work::Claim(work) = &request.work else { return };
        let now_ms = self.core.times.boot_ms();
        let lapse = self.load(&work.key).ok().flatten().filter(|record| record.at != FOREVER);
        // One millisecond past the lapse, by the slower clock at worst; the look itself decides.
        let lapse =
            lapse.map(|record| record.at.saturating_sub(self.now.early).saturating_add(now_ms).saturating_add(1));
        let key = work.key;
        let wake_at = lapse.map_or(work.wait_until_ms, |lapse| lapse.min(work.wait_until_ms));
        self.core.wake_later(wake_at, key);
        self.pen.waiting.entry(key).or_default().push_back(Waiting { request });
    }

    /// The store, for what the index does not hold.
    pub fn store(&self) -> Result<Arc<Store>> {
        self.core.store()
    }
}

/// Stands for «the sequence of this very row» where a grant is written.
pub(crate) const NEW_TOKEN: u64 = u64::MAX;
