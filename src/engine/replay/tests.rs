//! What the scan makes of the log is what the writer had: also when rows were written again whole, and whatever older
//! rows are still lying about.

use super::*;
use crate::engine::event::{
    Body, DoubtEvent, Head, LateEvent, Place, Reason, RecoveryRule, ReleaseEvent, RenewEvent, ResolveEvent,
    SettleEvent, Terms,
};
use crate::engine::expiry::moved;
use crate::engine::history::Chain;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const KEY: [u8; 32] = [7; 32];

fn body(random: &mut Random) -> Body {
    let stored = random.below(3) > 0;
    Body {
        kind: [Kind::Json, Kind::Text, Kind::Binary][random.below(3) as usize],
        error: random.below(2) == 0,
        len: random.below(9),
        crc: random.below(100) as u32,
        place: if stored { Place::Here } else { Place::Nowhere },
        exit_code: (random.below(2) == 0).then_some(3),
    }
}

fn grant(random: &mut Random, attempt: u32) -> Event {
    let lease = random.below(2) == 0;
    Event::Grant(GrantEvent {
        key: KEY,
        fingerprint: [random.below(3) as u8; 32],
        args: [4; 32],
        canonical: 1,
        session: 1 + random.below(3),
        attempt,
        first_attempt_ms: 5000,
        lease_until_ms: if lease { random.below(10_000) } else { u64::MAX },
        terms: Terms {
            keep_s: random.below(9) as u32,
            remember_s: 10,
            recovery: RecoveryRule::Resend(random.below(9) as u32),
        },
        resumed: false,
        scope: "s".to_owned(),
        label: "l".to_owned(),
    })
}

/// Some event that may follow a record.
fn next(random: &mut Random, record: &Record) -> (u64, Event) {
    let token = record.token;
    let event = match record.standing {
        Stored::Vacant => grant(random, record.attempt + 1),
        Stored::Done | Stored::Failed => Event::Late(LateEvent { key: KEY, end: Some(End::Done), body: body(random) }),
        Stored::InProgress | Stored::Uncertain(_) => match random.below(7) {
            0 => Event::Renew(RenewEvent { key: KEY, lease_until_ms: random.below(10_000) }),
            1 => Event::Settle(SettleEvent { key: KEY, end: End::Done, body: body(random) }),
            2 => Event::Settle(SettleEvent { key: KEY, end: End::Failed, body: body(random) }),
            3 => Event::Release(ReleaseEvent { key: KEY, why: "r".to_owned() }),
            4 => Event::Doubt(DoubtEvent { key: KEY, reason: Reason::Panicked, why: String::new() }),
            5 => Event::Late(LateEvent { key: KEY, end: None, body: Body::NONE }),
            _ => {
                let verdict = [VerdictRule::Done, VerdictRule::Failed, VerdictRule::NotDone][random.below(3) as usize];
                let body = if verdict == VerdictRule::NotDone { Body::NONE } else { body(random) };
                let (by, why) = ("b".to_owned(), "w".to_owned());
                Event::Resolve(ResolveEvent { key: KEY, verdict, body, by, why, forced: false })
            }
        },
    };
    // A renewal is only ever of a claim in progress; here it may follow a doubt too, which must not matter.
    let event = match event {
        Event::Renew(_) if record.standing != Stored::InProgress => {
            Event::Doubt(DoubtEvent { key: KEY, reason: Reason::Dropped, why: String::new() })
        }
        event => event,
    };
    (token, event)
}

struct Log(Vec<(u64, Entry)>);

impl Log {
    /// Adds an event as the writer does, and gives back the record after it.
    fn add(&mut self, record: Option<Record>, token: u64, event: Event) -> Record {
        let sequence = self.0.last().map_or(1, |(sequence, _)| sequence + 1);
        let token = if matches!(event, Event::Grant(_)) { sequence } else { token };
        let prev = record.map_or(0, |record| record.last);
        let head = Head { token, prev, late_ms: sequence * 10, wall_ms: sequence * 1700 };
        let entry = Entry { head, event };
        let next = apply(record, sequence, &entry).unwrap();
        self.0.push((sequence, entry));
        next
    }

    fn chain(&self, last: u64) -> Chain {
        let row = |sequence| {
            let found = self.0.iter().find(|(row, _)| *row == sequence);
            let (_, Entry { head, event }) = found.unwrap();
            let mut row = Vec::new();
            crate::engine::codec::seal_event(&mut row, sequence, head, event)?;
            Ok(Some(row))
        };
        Chain::follow(last, row).unwrap()
    }

    /// What a scan from the first row that is left makes of it.
    fn scan(&self, first: u64) -> Option<Record> {
        let rows = self.0.iter().filter(|(sequence, _)| *sequence >= first);
        rows.fold(None, |record, (sequence, entry)| apply(record, *sequence, entry))
    }
}

#[test]
fn a_scan_gives_the_writers_record_and_so_does_a_moved_row_whatever_lies_before_it() {
    let mut moves = 0;
    for seed in 0..2000 {
        let mut random = Random(seed);
        let mut log = Log(Vec::new());
        let first = grant(&mut random, 1);
        let mut record = log.add(None, 0, first);
        for _ in 0..random.below(14) {
            let (token, event) = next(&mut random, &record);
            record = log.add(Some(record), token, event);
            assert_eq!(log.scan(0), Some(record), "seed {seed}");
            if random.below(4) > 0 {
                continue;
            }
            let chain = log.chain(record.last);
            let told: Vec<_> = chain.told().cloned().collect();
            let whole = moved(&record, &chain).unwrap();
            let sequence = record.last + 1;
            let head = Head { token: record.token, prev: 0, late_ms: sequence * 10, wall_ms: sequence * 1700 };
            let entry = Entry { head, event: Event::Moved(Box::new(whole)) };
            let after = apply(None, sequence, &entry).unwrap();
            // All but the row itself is as it was.
            assert_eq!(Record { last: record.last, rows: record.rows, ..after }, record, "seed {seed}");
            assert_eq!((after.last, after.rows), (sequence, 1));
            log.0.push((sequence, entry));
            // The rows before it may go, from the old end, at any point: the scan sees the same.
            for first in 0..=sequence {
                assert_eq!(log.scan(first), Some(after), "seed {seed}, rows from {first} on");
            }
            let again: Vec<_> = log.chain(sequence).told().cloned().collect();
            let renewed = |told: &Told| told.what == ToldWhat::Renewed;
            let plain = |told: &[Told]| told.iter().filter(|told| !renewed(told)).cloned().collect::<Vec<_>>();
            assert_eq!(plain(&again), plain(&told), "seed {seed}: the history");
            record = after;
            moves += 1;
        }
    }
    println!("{moves} moves");
    assert!(moves > 1000);
}

/// Rows of an earlier life, or of a key that was moved, lead to no record of their own.
#[test]
fn leftover_rows_lead_to_no_record() {
    let mut random = Random(1);
    let mut log = Log(Vec::new());
    let first = grant(&mut random, 1);
    let record = log.add(None, 0, first);
    let record = log.add(Some(record), record.token, Event::Release(ReleaseEvent { key: KEY, why: String::new() }));
    let again = grant(&mut random, 2);
    let record = log.add(Some(record), 0, again);
    log.add(Some(record), record.token, Event::Settle(SettleEvent { key: KEY, end: End::Done, body: Body::NONE }));
    for first in 2..=4 {
        assert_eq!(log.scan(first), None, "from {first} on");
    }
}
