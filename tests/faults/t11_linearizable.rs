//! T11: real threads, 4 to 16 clients on a few keys, half of the time with a kill in the middle. The
//! history of every key, answers and times of call and return, must be that of some order in which
//! the calls happened one after the other; one with an unknown answer happened or did not.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onceledger::testkit::{Call, Decided, Disk, FakeClock, FaultDisk, Possible, Saw, SplitMix, Stand, Terms};
use onceledger::{Claim, Claimed, FencingToken, Key, Ledger, Options, Outcome, Scope, Settlement, Verdict};

use crate::driver::FILE;
use crate::kit::{Tally, floor, seed, violated};

const KEYS: u64 = 4;

/// One call of one client on one key.
#[derive(Clone, Debug)]
struct Event {
    key: u64,
    call: Call,
    saw: Saw,
    began: u64,
    ended: u64,
}

fn key(number: u64) -> Key {
    Key::action(&Scope::new("acme/race").unwrap(), "act", [number.to_le_bytes()]).unwrap()
}

struct Client<'a> {
    ledger: &'a Ledger,
    clock: &'a AtomicU64,
    events: &'a Mutex<Vec<Event>>,
}

impl Client<'_> {
    fn call<T>(&self, key: u64, call: Call, make: impl FnOnce() -> T, saw: impl FnOnce(&T) -> Saw) -> T {
        let began = self.clock.fetch_add(1, Ordering::SeqCst);
        let answer = make();
        let ended = self.clock.fetch_add(1, Ordering::SeqCst);
        let saw = saw(&answer);
        self.events.lock().unwrap().push(Event { key, call, saw, began, ended });
        answer
    }

    fn work(&self, random: &mut SplitMix) {
        let number = random.below(KEYS);
        let key = key(number);
        let ledger = self.ledger;
        match random.below(10) {
            0..=5 => {
                let claim = Claim::unguarded(key.clone());
                let call = Call::claim(&claim, Terms::default());
                let claimed = self.call(number, call, || ledger.claim(&claim), Saw::claimed);
                let Ok(Claimed::Granted(grant)) = claimed else { return };
                let token = grant.token().get();
                let ticket = grant.into_ticket();
                if random.coin() {
                    std::thread::yield_now();
                }
                match random.below(4) {
                    0 => {
                        let done = || ticket.settle(ledger, Settlement::not_applied("no"));
                        let _ = self.call(number, Call::Release(token), done, Saw::settled);
                    }
                    1 => {
                        let outcome = Outcome::text(format!("failed {token}"));
                        let done = || ticket.settle(ledger, Settlement::failed(outcome.clone()));
                        let _ = self.call(number, Call::Fail(token, outcome.clone()), done, Saw::settled);
                    }
                    2 => {
                        // The doubt is in line before the call returns, and written by then or later.
                        let done = || ticket.settle(ledger, Settlement::uncertain("?"));
                        let _ = self.call(number, Call::Drop(token), done, |settled| match settled {
                            Ok(_) => Saw::Applied,
                            Err(_) => Saw::settled(settled),
                        });
                    }
                    _ => {
                        let outcome = Outcome::text(format!("done {token}"));
                        let done = || ticket.settle(ledger, Settlement::done(outcome.clone()));
                        let _ = self.call(number, Call::Complete(token, outcome.clone()), done, Saw::settled);
                    }
                }
                // While it lives the claim is held; a ticket that goes does not settle.
                std::mem::forget(ticket);
            }
            6..=7 => {
                let _ = self.call(number, Call::Check, || ledger.check(&key), Saw::view);
            }
            _ => {
                // By force: a claim that is in progress is taken from its holder.
                let token = match ledger.check(&key) {
                    Ok(onceledger::View::InProgress(holder)) => holder.token,
                    Ok(onceledger::View::Uncertain(doubt)) => doubt.token,
                    _ => FencingToken::from_number(1),
                };
                let call = Call::Resolve(token.get(), Decided::NotDone, true);
                let resolve = || ledger.resolve_token(&key, token, Verdict::NotDone, "x", "y", true);
                let _ = self.call(number, call, resolve, Saw::resolved);
            }
        }
    }
}

/// Whether some order of the events explains all answers. Depth first, with what was tried remembered.
fn explain(events: &[Event], crash: Option<u64>) -> Result<(), String> {
    struct Search<'a> {
        events: &'a [Event],
        crash: Option<u64>,
        tried: HashSet<(Vec<bool>, bool, String)>,
        deepest: usize,
    }
    impl Search<'_> {
        fn go(&mut self, taken: &mut Vec<bool>, crashed: bool, state: &Possible) -> bool {
            let count = taken.iter().filter(|taken| **taken).count();
            self.deepest = self.deepest.max(count);
            if count == taken.len() {
                return true;
            }
            if !self.tried.insert((taken.clone(), crashed, format!("{state:?}"))) {
                return false;
            }
            // An event may be next if none that is left ended before it began.
            let left: Vec<usize> = (0..self.events.len()).filter(|at| !taken[*at]).collect();
            let first_end = left.iter().map(|at| self.end_of(*at)).min().unwrap_or(u64::MAX);
            if let (Some(crash), false) = (self.crash, crashed)
                && first_end >= crash
            {
                // Now, or once some of those whose answers were lost have taken effect.
                if self.go(taken, true, &state.orphaned(&[])) {
                    return true;
                }
            }
            for at in left.into_iter().filter(|at| self.events[*at].began <= first_end) {
                let event = self.events[at].clone();
                if !crashed && self.crash.is_some_and(|crash| event.began > crash) {
                    continue;
                }
                let lost = event.saw == Saw::Unknown;
                let taken_effect = if lost && crashed { None } else { state.step(0, &event.call, &event.saw) };
                let nexts = taken_effect.into_iter().chain(lost.then(|| state.clone()));
                for next in nexts {
                    taken[at] = true;
                    if self.go(taken, crashed, &next) {
                        return true;
                    }
                    taken[at] = false;
                }
            }
            false
        }

        /// An unknown answer may take effect until the process is gone.
        fn end_of(&self, at: usize) -> u64 {
            let event = &self.events[at];
            match (&event.saw, self.crash) {
                (Saw::Unknown, Some(crash)) => event.ended.max(crash),
                _ => event.ended,
            }
        }
    }
    let mut search = Search { events, crash, tried: HashSet::new(), deepest: 0 };
    let mut taken = vec![false; events.len()];
    if search.go(&mut taken, false, &Possible::fresh()) {
        return Ok(());
    }
    let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
    Err(format!(
        "no order explains these (at best {} of {}), crash {crash:?}:\n  {}",
        search.deepest,
        events.len(),
        lines.join("\n  ")
    ))
}

/// One history: clients at work, perhaps a kill, and a look at what is left.
fn history(seed: u64) -> Tally {
    let mut random = SplitMix::new(seed);
    let clients = 4 + random.below(13);
    let calls = 40 / clients + 3;
    let kill = random.coin();
    let disk = FaultDisk::new(seed);
    let fake = FakeClock::new();
    let options = |disk: &FaultDisk, threads| {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        Options::new().disk(shared).clock(Arc::new(fake.clone())).threads(threads)
    };
    let ledger = options(&disk, true).create(FILE).unwrap();
    if kill {
        disk.stop_at(disk.operations() + 20 + random.below(300));
    }
    let (clock, events) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (ledger, clock, events) = (&ledger, &clock, &events);
            scope.spawn(move || {
                let mut random = SplitMix::new(seed ^ (client + 1) << 32);
                let client = Client { ledger, clock, events };
                for _ in 0..calls {
                    client.work(&mut random);
                }
            });
        }
    });
    let crash = clock.fetch_add(1, Ordering::SeqCst);
    disk.stop();
    drop(ledger);
    let left = disk.process_crash();
    let ledger = options(&left, false).open(FILE).unwrap_or_else(|error| violated("t11", seed, format!("{error:?}")));
    let client = Client { ledger: &ledger, clock: &clock, events: &events };
    for number in 0..KEYS {
        let _ = client.call(number, Call::Check, || ledger.check(&key(number)), Saw::view);
    }
    let events = events.into_inner().unwrap();
    let mut tally = Tally { cases: 1, faults: u64::from(kill), unknown: 0 };
    for number in 0..KEYS {
        let mut mine: Vec<Event> = events.iter().filter(|event| event.key == number).cloned().collect();
        mine.sort_by_key(|event| event.began);
        tally.unknown += mine.iter().filter(|event| event.saw == Saw::Unknown).count() as u64;
        if let Err(what) = explain(&mine, Some(crash)) {
            violated("t11", seed, format!("key {number}, {clients} clients, kill {kill}: {what}"));
        }
    }
    tally
}

#[test]
fn t11_histories_of_many_clients_are_linearizable_for_each_key() {
    let floor = floor(50, 1_000);
    let mut tally = Tally::default();
    for seed in seed()..seed() + floor {
        tally.add(history(seed));
    }
    tally.end("T11", floor, "");
}

/// A disk that looks at the ledger in the middle of every sync.
#[derive(Debug)]
struct Looking {
    disk: FaultDisk,
    look: Arc<Looks>,
}

#[derive(Default)]
struct Looks(Mutex<Option<Box<dyn FnMut() + Send>>>);

impl std::fmt::Debug for Looks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Looks")
    }
}

mod looking {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use onceledger::testkit::{Disk, DiskFile, FileSystem, LockKind, Mode, Node};

    use super::{Looking, Looks};

    #[derive(Debug)]
    struct File {
        file: Arc<dyn DiskFile>,
        look: Arc<Looks>,
    }

    impl Disk for Looking {
        fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
            let file = self.disk.open(path, mode)?;
            Ok(Arc::new(File { file, look: Arc::clone(&self.look) }))
        }
        fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.link(from, to)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }
        fn create_dir(&self, path: &Path) -> io::Result<()> {
            self.disk.create_dir(path)
        }
        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            self.disk.sync_dir(path)
        }
        fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
            self.disk.list(path)
        }
        fn node(&self, path: &Path) -> io::Result<Option<Node>> {
            self.disk.node(path)
        }
        fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
            self.disk.canonical(path)
        }
        fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
            self.disk.file_system(path)
        }
    }

    impl DiskFile for File {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read_at(offset, out)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.file.write_at(offset, data)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }
        fn sync(&self) -> io::Result<()> {
            if let Some(look) = &mut *self.look.0.lock().unwrap() {
                look();
            }
            self.file.sync()
        }
        fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
            self.file.try_lock(kind)
        }
        fn unlock(&self) -> io::Result<()> {
            self.file.unlock()
        }
    }
}

/// What a crash could still take back is not shown to anybody.
#[test]
fn t11_nothing_is_seen_before_it_is_on_disk() {
    let look: Arc<Looks> = Arc::default();
    let disk: Arc<dyn Disk> = Arc::new(Looking { disk: FaultDisk::new(1), look: Arc::clone(&look) });
    let clock = Arc::new(FakeClock::new());
    let ledger = Options::new().disk(disk).clock(clock).threads(false).create(FILE).unwrap();
    // A first grant, so that its session's file is synced already.
    let _first = ledger.claim(&Claim::unguarded(key(9))).unwrap().granted().unwrap();
    let (seen, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let watch = |wanted: onceledger::Standing| -> Box<dyn FnMut() + Send> {
        let (ledger, seen, looks) = (ledger.clone(), Arc::clone(&seen), Arc::clone(&looks));
        Box::new(move || {
            let standing = ledger.check(&key(1)).unwrap().standing();
            looks.fetch_add(1, Ordering::SeqCst);
            seen.fetch_add(u64::from(standing != wanted), Ordering::SeqCst);
        })
    };
    *look.0.lock().unwrap() = Some(watch(onceledger::Standing::Vacant));
    let grant = ledger.claim(&Claim::unguarded(key(1))).unwrap().granted().unwrap();
    *look.0.lock().unwrap() = Some(watch(onceledger::Standing::InProgress));
    let _ = grant.complete("done").unwrap();
    *look.0.lock().unwrap() = None;
    assert!(looks.load(Ordering::SeqCst) >= 4, "two syncs for each of two commits");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "seen before it was on disk");
}

/// The search must be able to say no.
#[test]
fn t11_a_history_with_two_holders_is_not_explained() {
    let claim = Call::claim(&Claim::unguarded(key(0)), Terms::default());
    let event = |call: &Call, saw: Saw, began, ended| Event { key: 0, call: call.clone(), saw, began, ended };
    let twice = [event(&claim, Saw::Granted(3, 1), 1, 4), event(&claim, Saw::Granted(5, 1), 2, 3)];
    explain(&twice, None).unwrap_err();
    let lost = [event(&claim, Saw::Granted(3, 1), 1, 2), event(&Call::Check, Saw::Stands(Stand::Vacant), 5, 6)];
    explain(&lost, Some(4)).unwrap_err();
    explain(&lost[..1], Some(4)).unwrap();
}

/// And to say yes: what nobody was answered may be on disk, though nothing that was answered came after it.
#[test]
fn t11_a_claim_whose_answer_was_lost_may_be_there_after_the_crash() {
    let claim = Call::claim(&Claim::unguarded(key(0)), Terms::default());
    let event = |call: &Call, saw: Saw, began, ended| Event { key: 0, call: call.clone(), saw, began, ended };
    let after = |stand| [event(&claim, Saw::Unknown, 1, 2), event(&Call::Check, Saw::Stands(stand), 5, 6)];
    explain(&after(Stand::Uncertain(7)), Some(4)).unwrap();
    explain(&after(Stand::Vacant), Some(4)).unwrap();
    explain(&after(Stand::InProgress(7)), Some(4)).unwrap_err();
}
