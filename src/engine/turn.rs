//! One batch in the making: the events it appends, and the records they lead to, before anybody else
//! sees either. What a request comes to is in `rulings`.

use crate::engine::clock::Now;
use crate::engine::codec;
use crate::engine::core::Core;
use crate::engine::event::{DoubtEvent, Entry, Event, Head};
use crate::engine::index::KeyDigest;
use crate::engine::replay;
use crate::engine::state::{Record, Stored};
use crate::engine::writer::Pen;
use crate::error::{Error, Result};

/// Stands for «the sequence of this very row» where a grant is written.
pub(crate) const NEW_TOKEN: u64 = u64::MAX;

/// No chain of a key's events is longer.
const CHAIN_ROWS_MAX: u16 = 4096;

/// One batch being decided.
pub(crate) struct Turn<'a> {
    pub core: &'a Core,
    pub pen: &'a mut Pen,
    pub now: Now,
    /// Keys whose standing changed and that somebody may wait for.
    pub woken: Vec<KeyDigest>,
}

impl<'a> Turn<'a> {
    /// A turn outside a batch of requests: what opening has to record.
    pub fn alone(core: &'a Core, pen: &'a mut Pen, now: Now) -> Self {
        Turn { core, pen, now, woken: Vec::new() }
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

    /// Appends an event about a key and moves its record on.
    pub fn append(&mut self, key: &KeyDigest, record: Option<Record>, token: u64, event: Event) -> Result<Record> {
        // A long chain is written again whole: what reads it, and what counts its rows, has a limit.
        let record = match record {
            Some(long) if long.rows >= CHAIN_ROWS_MAX => self.rewrite(key, &long)?,
            other => other,
        };
        let prev = record.map_or(0, |record| record.last);
        let (sequence, entry) = self.write_row(token, prev, event)?;
        let next = replay::apply(record, sequence, &entry);
        let next = next.ok_or_else(|| Error::damaged(format!("event {sequence} has no grant before it")))?;
        self.note_open(key, record, &next);
        if let Some(body) = entry.event.body() {
            self.pen.due.body(&next, body, sequence, self.now.late_up);
        }
        self.pen.overlay.insert(*key, Some(next));
        if !self.pen.waiting.is_empty() {
            self.woken.push(*key);
        }
        Ok(next)
    }

    /// Keeps the list of open claims in step with a record that changes.
    fn note_open(&mut self, key: &KeyDigest, before: Option<Record>, after: &Record) {
        let open = |record: &Record| record.standing.is_open();
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
        let head = Head { token, prev, late_ms: self.now.late_up, wall_ms: self.now.wall };
        self.put_row(Entry { head, event })
    }

    /// Puts a row at the end of the log as it is: one that stood further in front keeps its times.
    pub fn put_row(&mut self, entry: Entry) -> Result<(u64, Entry)> {
        let sequence = self.pen.meta.next_sequence;
        let row = self.pen.batch.append(sequence, |out| codec::seal_event(out, sequence, &entry.head, &entry.event))?;
        let digest = codec::row_digest(sequence, row);
        self.pen.meta.next_sequence =
            sequence.checked_add(1).ok_or_else(|| Error::damaged("the log has no numbers left"))?;
        self.pen.meta.count += 1;
        self.pen.meta.digest = self.pen.meta.digest.wrapping_add(digest);
        Ok((sequence, entry))
    }

    /// Takes the oldest row out of the log, with what it added to the digest.
    pub fn drop_row(&mut self, sequence: u64, row: &[u8]) {
        self.pen.batch.begin = sequence.saturating_add(1);
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

    /// Whether this batch has changed the key.
    pub fn is_changed(&self, key: &KeyDigest) -> bool {
        self.pen.overlay.contains_key(key)
    }

    /// A row of this batch, where it is one.
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
}
