//! What is due: keys to forget, bodies to drop, rows of the log that nothing needs (P9, P10).
//!
//! A key is vacant the moment its retention has passed, swept or not; this is only about memory and
//! disk. Keys of one retention become due in the order in which they settled, so each retention
//! has a queue of its own. The log is cleaned from its old end: what is still needed of an old
//! stretch is written again at the new end in the same commit, so that one old doubt never pins the
//! file.

use std::collections::BTreeMap;

use crate::engine::clock::Now;
use crate::engine::codec;
use crate::engine::event::{ApprovalEvent, Body, Event, FOREVER, GrantEvent, MovedEvent, StandingRule, Told};
use crate::engine::history::Chain;
use crate::engine::index::{KeyDigest, SlotId};
use crate::engine::queue::{Item, Queue};
use crate::engine::state::{Record, Stored, seconds};
use crate::engine::turn::Turn;
use crate::error::{Error, Result};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Keys that were forgotten: their retention had passed.
    pub keys: u64,
    /// Outcome bodies that were dropped from the file.
    pub bodies: u64,
    /// Approvals that were forgotten, each with what its approver was shown.
    pub approvals: u64,
    /// Rows of the log that were removed.
    pub rows: u64,
    /// Keys that were written again, so that older rows could go.
    pub moved: u64,
}

/// When a key settled (late time in seconds, 18 hours in a chunk), and where it is.
impl Item for (u32, SlotId) {
    type Packed = [u8; 6];

    fn pack(self, base: Self) -> Option<[u8; 6]> {
        let [a, b] = u16::try_from(self.0.checked_sub(base.0)?).ok()?.to_le_bytes();
        let [c, d, e, f] = self.1.to_bytes();
        Some([a, b, c, d, e, f])
    }

    fn unpack([a, b, c, d, e, f]: [u8; 6], base: Self) -> Self {
        (base.0 + u32::from(u16::from_le_bytes([a, b])), SlotId::from_bytes([c, d, e, f]))
    }
}

/// The due queues, one for each retention in use.
#[derive(Default)]
pub(crate) struct Due {
    /// By retention in seconds: when it settled (late time in seconds) and where.
    keys: BTreeMap<u32, Queue<(u32, SlotId)>>,
    /// By retention in seconds: when it was stored (late time in milliseconds) and its row.
    bodies: BTreeMap<u32, Queue<(u64, u64)>>,
    /// By retention in seconds: when it last changed (late time in milliseconds) and its id.
    approvals: BTreeMap<u32, Queue<(u64, u64)>>,
}

/// Rows of the log that one sweep reads at most.
pub(crate) const STRETCH_ROWS: usize = 1024;

/// Bodies that one sweep drops at most.
const BODIES_MAX: usize = 512;

/// Approvals that one sweep forgets at most.
const APPROVALS_MAX: usize = 512;

/// The log is cleaned once more than this many rows, and more than a quarter of them, are garbage.
const GARBAGE_ROWS_MIN: u64 = 1024;

impl Due {
    /// Notes a record that was put in place.
    pub fn settled(&mut self, slot: SlotId, record: &Record) {
        if !record.standing.is_open() && record.remember_s != u32::MAX {
            self.keys.entry(record.remember_s).or_default().push((seconds(record.at), slot));
        }
    }

    /// Notes a body that an event at `sequence` stores.
    pub fn body(&mut self, record: &Record, body: &Body, sequence: u64, late_ms: u64) {
        if let Some(row) = body.row(sequence).filter(|_| record.keep_s != u32::MAX) {
            self.bodies.entry(record.keep_s).or_default().push((late_ms, row));
        }
    }

    /// Notes an approval that was changed.
    pub fn approval_of(&mut self, event: &ApprovalEvent) {
        self.approval(event.id, event.remember_s, event.changed_ms);
    }

    /// Notes that an approval is to be looked at when its retention has passed since `late_ms`.
    pub fn approval(&mut self, id: u64, remember_s: u32, late_ms: u64) {
        if remember_s != u32::MAX {
            self.approvals.entry(remember_s).or_default().push((late_ms, id));
        }
    }

    /// Puts every queue into the order of time, after a scan that met moved keys out of order, and
    /// leaves out bodies older than the first that is stored.
    pub fn settle_order(&mut self, first_body: Option<u64>) {
        for queue in self.keys.values_mut() {
            sort_by(queue, |(at, _)| *at);
        }
        let first = first_body.unwrap_or(u64::MAX);
        for queue in self.bodies.values_mut() {
            *queue = queue.iter().filter(|(_, row)| *row >= first).collect();
            sort_by(queue, |item| *item);
        }
        for queue in self.approvals.values_mut() {
            sort_by(queue, |item| *item);
        }
    }

    /// Whether a key or a body is due.
    pub fn is_due(&self, now: Now) -> bool {
        let key = self.keys.iter().any(|(keep, queue)| queue.front().is_some_and(|(at, _)| key_due(at, *keep, now)));
        let due =
            |(keep, queue): (&u32, &Queue<(u64, u64)>)| queue.front().is_some_and(|(at, _)| body_due(at, *keep, now));
        key || self.bodies.iter().any(due) || self.approvals.iter().any(due)
    }

    /// The slots of up to `limit` keys that are due, and may have changed since.
    fn take_keys(&mut self, now: Now, limit: u64) -> Vec<SlotId> {
        let mut slots = Vec::new();
        for (keep, queue) in &mut self.keys {
            while let Some((at, slot)) = queue.front()
                && (slots.len() as u64) < limit
                && key_due(at, *keep, now)
            {
                queue.pop();
                slots.push(slot);
            }
        }
        slots
    }

    /// The rows of up to `limit` bodies that are due.
    fn take_bodies(&mut self, now: Now, limit: usize) -> Vec<u64> {
        take_due(&mut self.bodies, now, limit)
    }

    /// The ids of up to `limit` approvals that are due, and may have changed since.
    pub fn take_approvals(&mut self, now: Now, limit: usize) -> Vec<u64> {
        take_due(&mut self.approvals, now, limit)
    }
}

/// Sorts a queue that is not sorted.
fn sort_by<T: Item, K: Ord>(queue: &mut Queue<T>, key: impl Fn(&T) -> K) {
    if !queue.iter().is_sorted_by_key(|item| key(&item)) {
        let mut items: Vec<T> = queue.iter().collect();
        items.sort_unstable_by_key(key);
        *queue = items.into_iter().collect();
    }
}

fn take_due(queues: &mut BTreeMap<u32, Queue<(u64, u64)>>, now: Now, limit: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for (keep, queue) in queues {
        while let Some((at, number)) = queue.front()
            && numbers.len() < limit
            && body_due(at, *keep, now)
        {
            queue.pop();
            numbers.push(number);
        }
    }
    numbers
}

/// Whole seconds: a key may be met up to a second after it is due, never before.
fn key_due(at_s: u32, keep_s: u32, now: Now) -> bool {
    (u64::from(at_s) + u64::from(keep_s) + 1).saturating_mul(1000) <= now.late
}

fn body_due(at_ms: u64, keep_s: u32, now: Now) -> bool {
    at_ms.saturating_add(u64::from(keep_s) * 1000) <= now.late
}

impl Turn<'_> {
    /// Forgets up to `limit` keys that are due, drops bodies that are due, and cleans a stretch of so many
    /// rows of the log where enough of it is garbage.
    pub fn sweep(&mut self, limit: u64, rows: usize) -> Result<Swept> {
        let mut swept = Swept::default();
        for slot in self.pen.due.take_keys(self.now, limit) {
            let Some((key, record)) = self.core.index.at(slot) else { continue };
            // What this batch granted anew is not in the index yet, and must not be forgotten.
            if self.is_changed(&key) {
                continue;
            }
            if record.is_forgotten(self.now) && !record.form.is_marked() {
                self.forget(&key);
                swept.keys += 1;
            }
        }
        for row in self.pen.due.take_bodies(self.now, BODIES_MAX.min(rows)) {
            // The queue is built from the log, which outlives its bodies: after an opening many are long gone.
            if self.pen.batch.body(row).is_some() || self.store()?.has_body(row)? {
                self.drop_body(row);
                swept.bodies += 1;
            }
        }
        swept.approvals += self.sweep_approvals(APPROVALS_MAX);
        if self.is_dirty() {
            self.clean(rows, &mut swept)?;
        }
        Ok(swept)
    }

    /// Whether the log has enough garbage to be cleaned.
    pub fn is_dirty(&self) -> bool {
        is_dirty(self.pen.garbage, self.pen.meta.count)
    }

    fn clean(&mut self, rows: usize, swept: &mut Swept) -> Result<()> {
        let mut stretch: Vec<(u64, Vec<u8>)> = Vec::with_capacity(rows);
        // Only rows that are committed: this batch's own have no row in the file yet. And none that a
        // sweep before this one in the same batch took out: the file still has those.
        let begin = self.pen.batch.begin;
        let end = self.pen.meta.next_sequence;
        self.store()?.scan(begin..end, |sequence, row| {
            stretch.push((sequence, row.to_vec()));
            Ok(stretch.len() < rows)
        })?;
        for (sequence, row) in stretch {
            let entry = codec::open_event(sequence, &row)?;
            let needed = match &entry.event {
                Event::Session(event) => self.keep_session(event.number)?,
                Event::Adopted(_) => {
                    self.put_row(entry.clone())?;
                    true
                }
                Event::Cell(event) => self.keep_cell(sequence, event)?,
                Event::Approval(event) => self.keep_approval(sequence, event)?,
                Event::Grant(_)
                | Event::Renew(_)
                | Event::Settle(_)
                | Event::Release(_)
                | Event::Doubt(_)
                | Event::Resolve(_)
                | Event::Late(_)
                | Event::Moved(_) => self.keep_key(sequence, &entry.event, swept)?,
            };
            self.drop_row(sequence, &row);
            swept.rows += 1;
            if !needed {
                self.pen.garbage = self.pen.garbage.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Writes a session again where a claim is open under it, or it is this process's own.
    fn keep_session(&mut self, number: u64) -> Result<bool> {
        let Some(row) = self.pen.sessions.get(&number) else { return Ok(false) };
        // A holder that lives may still leave what it did, though its claim was decided.
        if row.open == 0 && number != self.pen.own && !self.core.may_live(number) {
            self.pen.sessions.remove(&number);
            self.core.forget_session(number);
            return Ok(true);
        }
        let event = row.event.clone();
        self.write_row(0, 0, Event::Session(event))?;
        Ok(true)
    }

    /// Writes a key again, whole, where the row at `sequence` belongs to its life. False where
    /// the row is garbage.
    fn keep_key(&mut self, sequence: u64, event: &Event, swept: &mut Swept) -> Result<bool> {
        let Some(key) = event.key() else { return Ok(false) };
        let record = self.load(key)?;
        let live = record.filter(|record| !record.is_forgotten(self.now));
        let Some(record) = live else {
            if record.is_some() {
                self.forget(key);
            }
            self.drop_bodies_of(sequence, event, None);
            return Ok(false);
        };
        let chain = self.chain(&record)?;
        if !chain.rows().any(|row| row == sequence) {
            self.drop_bodies_of(sequence, event, Some(&chain));
            return Ok(false);
        }
        self.move_chain(key, &record, &chain)?;
        // This very row goes at once.
        self.pen.garbage = self.pen.garbage.saturating_sub(1);
        swept.moved += 1;
        Ok(true)
    }

    /// Writes a key again, whole. All rows of its chain are garbage then but the new one.
    pub fn rewrite(&mut self, key: &KeyDigest, record: &Record) -> Result<Option<Record>> {
        let chain = self.chain(record)?;
        self.move_chain(key, record, &chain)?;
        self.load(key)
    }

    fn move_chain(&mut self, key: &KeyDigest, record: &Record, chain: &Chain) -> Result<()> {
        let moved = moved(record, chain)?;
        let (at, entry) = self.write_row(record.token, 0, Event::Moved(Box::new(moved)))?;
        self.replace(key, at, &entry);
        self.pen.garbage += chain.rows().count() as u64;
        Ok(())
    }

    /// Drops the bodies of a row that goes, but those that the key's chain still names: once the row is
    /// gone nobody else knows of them, and the due queue is built from the rows at the next opening.
    fn drop_bodies_of(&mut self, sequence: u64, event: &Event, chain: Option<&Chain>) {
        for row in event.bodies().filter_map(|body| body.row(sequence)) {
            let names = |told: &Told| told.body.and_then(|body| body.row(0)) == Some(row);
            if !chain.is_some_and(|chain| chain.told().any(names)) {
                self.drop_body(row);
            }
        }
    }
}

/// Whether a log of `count` rows is to be cleaned.
pub(crate) fn is_dirty(garbage: u64, count: u64) -> bool {
    garbage > GARBAGE_ROWS_MIN && garbage > count / 4
}

pub(crate) fn moved(record: &Record, chain: &Chain) -> Result<MovedEvent> {
    let grant =
        chain.grant().ok_or_else(|| Error::damaged(format!("token {} has no grant in the log", record.token)))?;
    let lease_until_ms = if record.standing == Stored::InProgress { record.at } else { FOREVER };
    let body = match record.standing {
        Stored::Done | Stored::Failed => chain.settled_body().unwrap_or(Body::NONE),
        Stored::Vacant | Stored::InProgress | Stored::Uncertain(_) => Body::NONE,
    };
    Ok(MovedEvent {
        grant: GrantEvent { attempt: record.attempt, lease_until_ms, ..grant.clone() },
        standing: match record.standing {
            Stored::Vacant => StandingRule::Vacant,
            Stored::InProgress => StandingRule::InProgress,
            Stored::Done => StandingRule::Done,
            Stored::Failed => StandingRule::Failed,
            Stored::Uncertain(reason) => StandingRule::Uncertain(reason),
        },
        at_ms: record.at,
        since_ms: chain.since_ms(),
        body,
        history: chain.condensed(),
    })
}
