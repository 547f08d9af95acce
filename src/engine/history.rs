//! The chain of a key's events in the log, newest first, and what it tells.

use crate::engine::codec;
use crate::engine::event::{Body, Entry, Event, GrantEvent, Told, ToldWhat};
use crate::engine::index::KeyDigest;
use crate::engine::replay;
use crate::engine::state::Record;
use crate::engine::store::Store;
use crate::engine::turn::Turn;
use crate::error::{Error, Result};

/// The events of one key's life, oldest first.
#[derive(Debug)]
pub(crate) struct Chain {
    entries: Vec<(u64, Entry)>,
    history: Vec<Told>,
}

impl Chain {
    /// Follows the chain from its newest event. `row` gives the bytes of a row.
    pub fn follow(last: u64, mut row: impl FnMut(u64) -> Result<Option<Vec<u8>>>) -> Result<Self> {
        let mut entries = Vec::new();
        let mut history = Vec::new();
        let mut sequence = last;
        while sequence != 0 {
            let bytes = row(sequence)?;
            let bytes = bytes.ok_or_else(|| Error::damaged(format!("log sequence {sequence} is missing")))?;
            let entry = codec::open_event(sequence, &bytes)?;
            let prev = match &entry.event {
                Event::Moved(moved) => {
                    history.clone_from(&moved.history);
                    0
                }
                _ => entry.head.prev,
            };
            if prev >= sequence {
                return Err(Error::damaged(format!("log sequence {sequence} names a later one as the one before it")));
            }
            entries.push((sequence, entry));
            sequence = prev;
        }
        entries.reverse();
        history.extend(entries.iter().filter_map(|(sequence, entry)| replay::told(*sequence, entry)));
        Ok(Chain { entries, history })
    }

    /// Reads a chain that is committed. `None` where the log was cleaned under the reader, who then
    /// looks the record up again.
    pub fn read(store: &Store, last: u64) -> Result<Self> {
        Chain::follow(last, |sequence| store.row(sequence))
    }

    /// What it tells, oldest first.
    pub fn told(&self) -> impl Iterator<Item = &Told> {
        self.history.iter()
    }

    /// The same, owned.
    pub fn into_told(self) -> Vec<Told> {
        self.history
    }

    /// The newest grant, with what the key is called.
    pub fn grant(&self) -> Option<&GrantEvent> {
        self.entries.iter().rev().find_map(|(_, entry)| match &entry.event {
            Event::Grant(grant) => Some(grant),
            Event::Moved(moved) => Some(&moved.grant),
            Event::Session(_)
            | Event::Renew(_)
            | Event::Settle(_)
            | Event::Release(_)
            | Event::Doubt(_)
            | Event::Resolve(_)
            | Event::Late(_)
            | Event::Adopted(_)
            | Event::Cell(_)
            | Event::Approval(_) => None,
        })
    }

    /// The body that the newest settle or verdict stated, placed.
    pub fn settled_body(&self) -> Option<Body> {
        self.entries.iter().rev().find_map(|(sequence, entry)| match &entry.event {
            Event::Settle(event) => Some(replay::placed(event.body, *sequence)),
            Event::Resolve(event) => Some(replay::placed(event.body, *sequence)),
            Event::Moved(event) => Some(event.body),
            Event::Session(_)
            | Event::Grant(_)
            | Event::Renew(_)
            | Event::Release(_)
            | Event::Doubt(_)
            | Event::Late(_)
            | Event::Adopted(_)
            | Event::Cell(_)
            | Event::Approval(_) => None,
        })
    }

    /// The sequences of its rows, oldest first.
    pub fn rows(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|(sequence, _)| *sequence)
    }

    /// The wall clock when the key's standing began, in milliseconds.
    pub fn since_ms(&self) -> u64 {
        let began = self.entries.iter().rev().find(|(_, entry)| match &entry.event {
            Event::Renew(_)
            | Event::Late(_)
            | Event::Session(_)
            | Event::Adopted(_)
            | Event::Cell(_)
            | Event::Approval(_) => false,
            Event::Grant(_)
            | Event::Settle(_)
            | Event::Release(_)
            | Event::Doubt(_)
            | Event::Resolve(_)
            | Event::Moved(_) => true,
        });
        began.map_or(0, |(_, entry)| match &entry.event {
            Event::Moved(moved) => moved.since_ms,
            _ => entry.head.wall_ms,
        })
    }

    /// The history as a moved key carries it: of renewals only the last of each grant.
    pub fn condensed(&self) -> Vec<Told> {
        let renewed = |told: &Told| told.what == ToldWhat::Renewed;
        let mut lines: Vec<Told> = Vec::with_capacity(self.history.len());
        for told in &self.history {
            match lines.last_mut() {
                Some(last) if renewed(last) && renewed(told) && last.token == told.token => *last = told.clone(),
                Some(_) | None => lines.push(told.clone()),
            }
        }
        lines
    }
}

impl Turn<'_> {
    /// The chain of a record as this batch so far leaves it.
    pub fn chain(&self, record: &Record) -> Result<Chain> {
        let store = self.store()?;
        Chain::follow(record.last, |sequence| match self.row_in_batch(sequence) {
            Some(row) => Ok(Some(row.to_vec())),
            None => store.row(sequence),
        })
    }
}

/// Reads the chain of a key that may be moved meanwhile: looks the record up again where a row is
/// gone.
pub(crate) fn read_chain(
    store: &Store,
    key: &KeyDigest,
    record: impl Fn(&KeyDigest) -> Option<Record>,
) -> Result<Option<(Record, Chain)>> {
    const TRIES: usize = 8;
    let mut failed = None;
    for _ in 0..TRIES {
        let Some(found) = record(key) else { return Ok(None) };
        match Chain::read(store, found.last) {
            Ok(chain) => return Ok(Some((found, chain))),
            Err(error) => failed = Some(error),
        }
        if record(key).is_some_and(|now| now.last == found.last) {
            break;
        }
    }
    failed.map_or(Ok(None), Err)
}
