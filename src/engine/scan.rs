//! The scan: the whole log, read, checked and put into the index when a ledger is opened (P12).

use crate::engine::codec::{self, Meta};
use crate::engine::event::{Entry, Event};
use crate::engine::index::Index;
use crate::engine::replay;
use crate::engine::side::Side;
use crate::engine::store::Store;
use crate::engine::writer::{Pen, SessionRow};
use crate::error::{Error, ErrorKind, Result};

/// Reads the whole log into the index, and compares count and digest.
pub(crate) fn scan(store: &Store, meta: Meta, index: &Index, side: &mut Side, threads: bool) -> Result<Pen> {
    let mut pen = Pen::new(meta);
    let mut loose = 0_u64;
    let take = |rows: &[(u64, Entry)]| {
        index.touch(rows.iter().filter_map(|(_, entry)| entry.event.key()));
        for (sequence, entry) in rows {
            loose += u64::from(matches!(entry.event, Event::Session(_) | Event::Adopted(_)));
            replay_into(&mut pen, index, side, *sequence, entry);
        }
    };
    let beside = threads && meta.count > ROWS_AT_ONCE as u64;
    let (count, digest) = if beside { read_beside(store, &meta, take)? } else { read_rows(store, &meta, take)? };
    if (count, digest) != (meta.count, meta.digest) {
        return Err(Error::damaged(format!(
            "the log has {count} rows where {} were written, or rows that nobody wrote",
            meta.count
        ))
        .next("restore the file from a copy; rows of it are lost"));
    }
    let mut rows = 0;
    index.for_each(|key, record| {
        rows += u64::from(record.rows);
        if record.standing.is_open() {
            pen.open.insert(record.token, *key);
            if let Some(session) = pen.sessions.get_mut(&record.link) {
                session.open += 1;
            }
        }
    });
    pen.garbage = count.saturating_sub(rows + loose + side.rows());
    side.approvals.values().for_each(|record| pen.due.approval_of(&record.event));
    pen.due.settle_order(store.first_body()?);
    Ok(pen)
}

/// Rows that are taken in together.
const ROWS_AT_ONCE: usize = 1024;

/// Reads and checks every row, and gives them to `take` in order. Gives back their count and digest.
fn read_rows(store: &Store, meta: &Meta, mut take: impl FnMut(&[(u64, Entry)])) -> Result<(u64, u128)> {
    read_checked(store, meta, |rows| {
        take(rows);
        rows.clear();
        true
    })
}

/// The same, with a second thread that reads and checks while this one takes in.
fn read_beside(store: &Store, meta: &Meta, mut take: impl FnMut(&[(u64, Entry)])) -> Result<(u64, u128)> {
    const BATCHES_WAITING: usize = 4;
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<(u64, Entry)>>(BATCHES_WAITING);
    std::thread::scope(|scope| {
        let read = move || {
            read_checked(store, meta, |rows| {
                send.send(std::mem::replace(rows, Vec::with_capacity(ROWS_AT_ONCE))).is_ok()
            })
        };
        let reader = std::thread::Builder::new().name("onceledger-reader".to_owned()).spawn_scoped(scope, read);
        let reader = reader.map_err(|error| {
            Error::new(ErrorKind::Storage, format!("starting a thread that reads the log: {error}"))
        })?;
        receive.iter().for_each(|rows| take(&rows));
        reader.join().unwrap_or_else(|_| Err(Error::damaged("reading the log panicked")))
    })
}

/// Reads and checks every row. `take` gets them in order, some at a time, and says whether to go on.
fn read_checked(
    store: &Store,
    meta: &Meta,
    mut take: impl FnMut(&mut Vec<(u64, Entry)>) -> bool,
) -> Result<(u64, u128)> {
    let (mut count, mut digest) = (0_u64, 0_u128);
    let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
    store.scan(0..u64::MAX, |sequence, row| {
        count += 1;
        digest = digest.wrapping_add(codec::row_digest(sequence, row));
        if sequence >= meta.next_sequence {
            return Err(Error::damaged(format!("log sequence {sequence} is beyond the end {}", meta.next_sequence)));
        }
        rows.push((sequence, codec::scan_event(sequence, row)?));
        Ok(rows.len() < ROWS_AT_ONCE || take(&mut rows))
    })?;
    take(&mut rows);
    Ok((count, digest))
}

/// Takes one event in.
fn replay_into(pen: &mut Pen, index: &Index, side: &mut Side, sequence: u64, entry: &Entry) {
    if let Event::Session(event) = &entry.event {
        pen.sessions.insert(event.number, SessionRow { event: event.clone(), open: 0 });
    }
    if let Event::Adopted(event) = &entry.event {
        pen.adoptions.insert(event.epoch, entry.clone());
    }
    side.replay(sequence, &entry.event);
    let Some(key) = entry.event.key() else { return };
    let applied = index.apply(key, |record| replay::apply(record, sequence, entry));
    let Some((slot, record)) = applied else { return };
    pen.due.settled(slot, &record);
    // A settled key that was moved is due from its settle on, however often it was.
    let moved = matches!(entry.event, Event::Moved(_)) && !record.standing.is_open();
    let late_ms = if moved { record.at.min(entry.head.late_ms) } else { entry.head.late_ms };
    for body in entry.event.bodies() {
        pen.due.body(&record, body, sequence, late_ms);
    }
}
