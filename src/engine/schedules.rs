//! T10: schedules of the line, its cells and the index, explored with shuttle. The code explored is
//! the code that runs; only what is written and who writes it is made up here.
//!
//!     tests/schedules.sh            (or with ONCELEDGER_FLOOR=long)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::event::RecoveryRule;
use crate::engine::index::Index;
use crate::engine::line::{Cell, Line, Submitted};
use crate::engine::state::{Form, PackedRule, Record, Stored};
use crate::engine::sync::{Arc, thread};
use crate::outcome::{Kind, Outcome};

type Answer = u64;

/// A request: what to do, and where the answer goes.
struct Request {
    what: What,
    cell: Arc<Cell<Answer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Counts up and publishes the count under a key.
    Write(u8),
    /// Waits until a key was written, as a claim waits for an outcome.
    Await(u8),
}

/// The pen's state: what was written, and who waits.
#[derive(Default)]
struct Log {
    written: Vec<u8>,
    waiting: Vec<Request>,
}

struct Ledger {
    line: Line<Request, Log>,
    index: Index,
}

fn record(token: u64) -> Record {
    Record {
        fingerprint: [0; 32],
        token,
        last: token,
        at: 0,
        link: 0,
        first_attempt_s: 0,
        attempt: 1,
        body_len: 0,
        keep_s: 0,
        remember_s: 0,
        since_s: 0,
        rule: PackedRule::new(RecoveryRule::Hold),
        standing: Stored::Done,
        form: Form::new(Kind::Json, false),
        rows: 1,
    }
}

fn digest(key: u8) -> [u8; 32] {
    // The high bits choose the shard: some keys share one.
    let mut digest = [key; 32];
    digest[0] = key << 7;
    digest
}

impl Ledger {
    fn new() -> Arc<Ledger> {
        Arc::new(Ledger { line: Line::new(Log::default()), index: Index::new(0) })
    }

    /// As the writer: decide in order, publish, put those who waited back at the front, answer later.
    fn write(&self, log: &mut Log, requests: Vec<Request>) -> Vec<(Request, Answer)> {
        let mut answers = Vec::new();
        for request in requests {
            match request.what {
                What::Write(key) => {
                    log.written.push(key);
                    let count = log.written.len() as u64;
                    self.index.put(&digest(key), &record(count));
                    let (woken, rest): (Vec<_>, Vec<_>) =
                        log.waiting.drain(..).partition(|waiting| waiting.what == What::Await(key));
                    log.waiting = rest;
                    self.line.push_front(woken.into_iter());
                    answers.push((request, count));
                }
                What::Await(key) => match self.index.get(&digest(key)) {
                    Some(found) => answers.push((request, found.token)),
                    None => log.waiting.push(request),
                },
            }
        }
        answers
    }

    fn give(answers: Vec<(Request, Answer)>) {
        for (request, answer) in answers {
            if let Ok(Some(waker)) = request.cell.fill(answer) {
                waker.wake();
            }
        }
    }

    fn call(&self, what: What, may_lead: bool) -> Option<Answer> {
        let (cell, receive) = Cell::new();
        match self.line.submit(Request { what, cell }, may_lead, |log, requests| self.write(log, requests)) {
            Submitted::Written(answers) => Ledger::give(answers),
            Submitted::InLine => {}
            Submitted::Refused(_) => return None,
        }
        Some(receive.wait())
    }

    fn write_on(&self) {
        while self.line.wait() {
            self.line.write_all(|log, requests| self.write(log, requests), Ledger::give);
        }
    }
}

fn schedules(ordinary: usize, long: usize) -> usize {
    match std::env::var("ONCELEDGER_FLOOR").as_deref() {
        Ok("long") => long,
        Ok("tenth") => long / 10,
        _ => ordinary,
    }
}

/// Explores with random schedules and with few preemptions, half each, and prints the line of the
/// suite. A schedule that fails is printed by shuttle with how to replay it; a deadlock fails.
fn explore(name: &str, run: impl Fn() + Send + Sync + Copy + 'static) {
    let floor = schedules(1_000, 100_000);
    let seen = Arc::new(AtomicU64::new(0));
    let counted = || {
        let seen = Arc::clone(&seen);
        move || {
            seen.fetch_add(1, Ordering::Relaxed);
            run();
        }
    };
    shuttle::check_random(counted(), floor / 2);
    shuttle::check_pct(counted(), floor / 2, 3);
    let seen = seen.load(Ordering::Relaxed);
    println!("T10 {name} cases={seen} faults=0 unknown=0 violations=0");
    assert!(seen >= floor as u64, "{name}: {seen} schedules are under the floor of {floor}");
}

#[test]
fn every_request_is_written_once_and_answered() {
    explore("hand_over", || {
        let ledger = Ledger::new();
        let writer = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || ledger.write_on())
        };
        let clients: Vec<_> = (0..3_u8)
            .map(|client| {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || {
                    for call in 0..2 {
                        // Futures never lead.
                        let count = ledger.call(What::Write(client), (client + call) % 3 != 0).unwrap();
                        // Published before it was answered.
                        let seen = ledger.index.get(&digest(client)).unwrap();
                        assert!(seen.token >= count, "answered before it was published");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        ledger.line.close();
        writer.join().unwrap();
        let mut written = ledger.line.pen().written.clone();
        written.sort_unstable();
        assert_eq!(written, [0, 0, 1, 1, 2, 2]);
    });
}

#[test]
fn whoever_waits_for_a_key_is_woken_by_its_write() {
    explore("waiters", || {
        let ledger = Ledger::new();
        let writer = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || ledger.write_on())
        };
        let calls = [
            (What::Await(0), true),
            (What::Await(0), false),
            (What::Await(1), true),
            (What::Write(1), false),
            (What::Write(0), true),
        ];
        let clients: Vec<_> = calls
            .into_iter()
            .map(|(what, may_lead)| {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || ledger.call(what, may_lead).unwrap())
            })
            .collect();
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
        ledger.line.close();
        writer.join().unwrap();
    });
}

#[test]
fn an_answer_is_taken_or_given_back_and_never_both() {
    explore("cells", || {
        let (cell, receive) = Cell::<Answer>::new();
        let filler = thread::spawn(move || cell.fill(7).err());
        let waker = std::task::Waker::noop();
        let polled = receive.poll_with(waker);
        let given_up = if polled.is_none() { receive.give_up() } else { None };
        let undelivered = filler.join().unwrap();
        let places = [polled, given_up, undelivered];
        assert_eq!(places.iter().flatten().count(), 1, "{places:?}");
    });
}

#[test]
fn a_request_at_closing_time_is_refused_or_written() {
    explore("closing", || {
        let ledger = Ledger::new();
        let writer = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || ledger.write_on())
        };
        let clients: Vec<_> = (0..2_u8)
            .map(|client| {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || ledger.call(What::Write(client), false).is_some())
            })
            .collect();
        ledger.line.close();
        writer.join().unwrap();
        // As `Core::close`: what is left in line is written by whoever closes.
        ledger.line.write_all(|log, requests| ledger.write(log, requests), Ledger::give);
        let answered = clients.into_iter().map(|client| client.join().unwrap()).filter(|answered| *answered).count();
        assert_eq!(answered, ledger.line.pen().written.len());
    });
}

/// Changes the index on a thread of its own.
fn publish(index: &Arc<Index>, run: impl FnOnce(&Index) + Send + 'static) -> thread::JoinHandle<()> {
    let index = Arc::clone(index);
    thread::spawn(move || run(&index))
}

#[test]
fn a_reader_sees_one_record_or_the_next_and_never_goes_back() {
    explore("publish", || {
        let index = Arc::new(Index::new(0));
        let publisher = publish(&index, move |index| {
            for token in 1..=3 {
                index.put(&digest(0), &Record { last: token * 10, ..record(token) });
                index.put(&digest(2), &record(token));
                index.remove(&digest(2));
            }
        });
        let mut newest = 0;
        for _ in 0..4 {
            if let Some(seen) = index.get(&digest(0)) {
                assert_eq!(seen.last, seen.token * 10, "half of two records");
                assert!(seen.token >= newest, "went back");
                newest = seen.token;
            }
            thread::yield_now();
        }
        publisher.join().unwrap();
        assert_eq!(index.get(&digest(0)).unwrap().token, 3);
        assert!(index.get(&digest(2)).is_none());
    });
}

#[test]
fn a_key_that_stays_is_found_while_the_table_grows_and_shrinks() {
    explore("growth", || {
        // One shard, and buckets that collide: the homes of all keys are the same few.
        let key = |number: u8| {
            let mut key = [0; 32];
            (key[1], key[31]) = (number % 3, number);
            key
        };
        let index = Arc::new(Index::new(0));
        index.put(&key(0), &record(1));
        let publisher = publish(&index, move |index| {
            for number in 1..=13 {
                index.put(&key(number), &record(u64::from(number)));
            }
            for number in 1..=13 {
                assert!(index.remove(&key(number)).is_some());
            }
        });
        for _ in 0..6 {
            assert_eq!(index.get(&key(0)).map(|seen| seen.token), Some(1), "a key that stays was not found");
            if let Some(seen) = index.get(&key(5)) {
                assert_eq!((seen.token, seen.last), (5, 5), "another key's record");
            }
        }
        publisher.join().unwrap();
        for number in 1..=13 {
            assert!(index.get(&key(number)).is_none());
        }
    });
}

#[test]
fn whoever_looks_at_every_slot_sees_whole_records() {
    explore("walk", || {
        let index = Arc::new(Index::new(0));
        // A shard other than the first: an empty slot says nothing of whose it is.
        let publisher = publish(&index, move |index| {
            for token in 1..=3 {
                index.put(&[u8::MAX; 32], &Record { at: token, last: token * 10, ..record(token) });
            }
        });
        for _ in 0..3 {
            index.for_each(|key, seen| {
                assert_eq!((seen.at, seen.last), (seen.token, seen.token * 10), "half of two records");
                assert_eq!(*key, [u8::MAX; 32], "half of a key");
            });
        }
        publisher.join().unwrap();
    });
}

#[test]
fn a_line_gives_the_body_of_its_row_or_nothing() {
    explore("lines", || {
        let body = |row: u64| Outcome::text(row.to_string().repeat(5));
        let index = Arc::new(Index::new(1 << 10));
        let slot = index.put(&digest(0), &record(1));
        let of_row = |row: u64| Record { link: row, body_len: 5, ..record(1) };
        index.cache(slot, 1, body(1));
        let publisher = publish(&index, move |index| (2..=9).for_each(|row| index.cache(slot, row, body(row))));
        for row in 1..=9 {
            if let Some(seen) = index.body(slot, &of_row(row)) {
                assert_eq!(seen, body(row), "a body of another row");
            }
            thread::yield_now();
        }
        publisher.join().unwrap();
        assert_eq!(index.body(slot, &of_row(9)), Some(body(9)));
    });
}
