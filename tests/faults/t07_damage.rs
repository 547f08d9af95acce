//! T7: a ledger's files are damaged: bytes flipped, sectors zeroed, pages swapped, files cut and
//! replaced by older copies. The damage is reported, or nothing of it is seen: never silent, never
//! an empty ledger, never a panic. A damaged file that is accepted is written to, reopened and looked
//! at again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};

use onceledger::testkit::{Call, FakeClock, FaultDisk, Model, Saw, SplitMix, Stand, Terms};
use onceledger::{Claim, ErrorKind, Key, Ledger, Options, Outcome, Scope};

use crate::driver::{FILE, Step};
use crate::kit::{Tally, is_long, seed};
use crate::t01_crash_at_every_sync::run;

/// Rows beside those of the random calls.
const FILLERS: u64 = 40;

const ANCHOR: &str = "/ledger.redb.anchor";

/// redb's flags, the bit of them that names the slot of the last commit, and that commit's number
/// in either slot, which its checksum covers.
const FLAGS: u64 = 9;
const SECOND: u8 = 1;
const TWO_PHASE: u8 = 4;
const SLOTS: [u64; 2] = [64 + 104, 192 + 104];

/// A small ledger, closed in order or not, and what it says.
struct Sample {
    disk: FaultDisk,
    clock: FakeClock,
    model: Model,
    keys: Vec<Key>,
    stands: Vec<Stand>,
    verified: onceledger::Verified,
}

fn options(disk: &FaultDisk, clock: &FakeClock) -> Options {
    Options::new()
        .disk(Arc::new(disk.clone()))
        .clock(Arc::new(clock.clone()))
        .threads(false)
        .outcome_bytes_max(4096)
        // Bodies are read from the file every time.
        .cache_bytes(0)
}

/// Makes a ledger by random calls, and adds some rows so that the tree has more than one page.
fn sample(seed: u64, clean: bool) -> Sample {
    let mut driver = run(seed, 25);
    let ledger = driver.ledger.as_ref().unwrap();
    for number in 0..FILLERS {
        let claim = filler(number);
        let grant = ledger.claim(&claim).unwrap().granted().unwrap();
        let _ = grant.complete(Outcome::text(format!("filler {number}").repeat(4))).unwrap();
    }
    driver.step(Step::Reopen).unwrap();
    // The last commit is one that somebody was answered.
    let ledger = driver.ledger.as_ref().unwrap();
    let _ = ledger.claim(&filler(FILLERS)).unwrap().granted().unwrap().complete("the last").unwrap();
    let (disk, clock) = (driver.disk.clone(), driver.clock.clone_hands());
    if clean {
        driver.grants.clear();
        driver.tickets.clear();
        driver.ledger.take().unwrap().close().unwrap();
    } else {
        disk.stop();
        driver.ledger = None;
    }
    let disk = disk.process_crash();
    let keys: Vec<Key> = (0..crate::driver::KEYS)
        .map(crate::driver::key)
        .chain((0..=FILLERS).map(|number| filler(number).key().clone()))
        .collect();
    let mut model = driver.model.clone();
    model.orphan(&[]);
    Sample { disk, clock, model, keys, stands: Vec::new(), verified: Default::default() }.looked_at()
}

impl Sample {
    /// The same with what it says, once opened after the crash: what recovery does is part of it.
    fn looked_at(mut self) -> Self {
        let looked = self.disk.process_crash();
        let ledger = options(&looked, &self.clock).open(FILE).unwrap();
        self.stands = self.keys.iter().map(|key| Stand::of(&ledger.check(key).unwrap())).collect();
        self.verified = ledger.verify().unwrap();
        looked.stop();
        self
    }

    /// The file as a crash between the two phases of its last commit would have left it, where that
    /// commit did not reach the disk.
    fn at_the_commit_before(&self) -> Self {
        let disk = self.disk.process_crash();
        let flags = disk.export(FILE).unwrap()[FLAGS as usize];
        disk.flip(FILE, FLAGS, SECOND);
        disk.flip(FILE, SLOTS[usize::from(flags & SECOND)], 0xff);
        let clock = self.clock.clone_hands();
        let (model, keys) = (self.model.clone(), self.keys.clone());
        Sample { disk, clock, model, keys, stands: Vec::new(), verified: self.verified }.looked_at()
    }
}

fn filler(number: u64) -> Claim {
    let scope = Scope::new("acme/damage").unwrap();
    Claim::unguarded(Key::action(&scope, "fill", [number.to_le_bytes()]).unwrap())
}

/// What came of one damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Refused,
    Unaffected,
    /// A call, and not the open, said that the file is damaged.
    ToldLater,
}

fn is_told(error: &onceledger::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Damaged
            | ErrorKind::RolledBack
            | ErrorKind::NotALedger
            | ErrorKind::NewerFormat
            | ErrorKind::Missing
    )
}

/// Panics inside redb are caught and told as damage; their messages would be thousands.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    thread_local! {
        static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let ran = run();
    QUIET.set(false);
    ran
}

/// Opens a damaged disk and looks at everything. An `Err` is a violation.
fn judge_file(sample: &Sample, disk: &FaultDisk) -> Result<End, String> {
    let judged = quietly(|| catch_unwind(AssertUnwindSafe(|| judge_inside(sample, disk))));
    judged.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err(format!("a panic: {text}"))
    })
}

fn judge_inside(sample: &Sample, disk: &FaultDisk) -> Result<End, String> {
    let ledger = match options(disk, &sample.clock).open(FILE) {
        Ok(ledger) => ledger,
        Err(error) if is_told(&error) => return Ok(End::Refused),
        Err(error) => return Err(format!("opening ended with {error:?}")),
    };
    let mut end = look(sample, &ledger)?;
    let mut tokens = Vec::new();
    if let Err(error) = claim_many(&ledger, &mut tokens) {
        // A commit that met damage may be on disk or not: unknown, and its text says damage.
        if !is_told(&error) && !error.is_unknown() {
            return Err(format!("writing ended with {error:?}"));
        }
        end = End::ToldLater;
    }
    let closed = ledger.close();
    if let Err(error) = &closed
        && !is_told(error)
        && !error.is_storage()
    {
        return Err(format!("closing ended with {error:?}"));
    }
    match options(disk, &sample.clock).open(FILE) {
        Ok(ledger) => {
            let again = look(sample, &ledger)?;
            for number in tokens {
                let view =
                    ledger.check(extra(number).key()).map_err(|error| format!("a check ended with {error:?}"))?;
                if view.standing() == onceledger::Standing::Vacant {
                    return Err(format!("claim {number} was granted, and is gone after reopening"));
                }
            }
            disk.stop();
            Ok(end.max(again))
        }
        Err(error) if is_told(&error) && end == End::ToldLater => Ok(end),
        Err(error) => Err(format!("accepted, written to, closed, and then refused: {error:?}")),
    }
}

/// Every key says what it said, or that its outcome is damaged.
fn look(sample: &Sample, ledger: &Ledger) -> Result<End, String> {
    let end = std::cell::Cell::new(End::Unaffected);
    let told = |error: onceledger::Error| {
        end.set(End::ToldLater);
        if is_told(&error) { Ok(()) } else { Err(format!("a call ended with {error:?}")) }
    };
    for (key, stood) in sample.keys.iter().zip(&sample.stands) {
        match ledger.check(key) {
            Ok(view) if Stand::of(&view) == *stood => {}
            Ok(view) => return Err(format!("silent: {key:?} stood at {stood:?} and shows {view:?}")),
            Err(error) => told(error)?,
        }
        if let Err(error) = ledger.history(key) {
            told(error)?;
        }
    }
    match ledger.verify() {
        Ok(verified) if verified == sample.verified || end.get() == End::ToldLater => {}
        Ok(verified) => {
            // The 200 claims add rows; bodies that were there stay.
            if verified.bodies < sample.verified.bodies || verified.rows < sample.verified.rows {
                return Err(format!("silent: verified {verified:?} where there was {:?}", sample.verified));
            }
        }
        Err(error) => told(error)?,
    }
    Ok(end.get())
}

fn extra(number: u64) -> Claim {
    let scope = Scope::new("acme/damage").unwrap();
    Claim::unguarded(Key::action(&scope, "extra", [number.to_le_bytes()]).unwrap())
}

/// 200 claims, in batches of 50.
fn claim_many(ledger: &Ledger, granted: &mut Vec<u64>) -> onceledger::Result<()> {
    let mut context = Context::from_waker(Waker::noop());
    for batch in 0..4 {
        let claims: Vec<Claim> = (batch * 50..batch * 50 + 50).map(extra).collect();
        let mut waiting: Vec<_> = claims.iter().map(|claim| Box::pin(ledger.claim_async(claim))).collect();
        for claiming in &mut waiting {
            assert!(claiming.as_mut().poll(&mut context).is_pending(), "nobody wrote yet");
        }
        ledger.tick();
        for (number, mut claiming) in (batch * 50..).zip(waiting) {
            let std::task::Poll::Ready(answer) = claiming.as_mut().poll(&mut context) else {
                panic!("a tick writes what is in line");
            };
            if let Some(grant) = answer?.granted() {
                granted.push(number);
                drop(grant.into_ticket());
            }
        }
    }
    Ok(())
}

/// Damages copies of a sample, and counts what came of it.
struct Judge<'a> {
    sample: &'a Sample,
    ends: std::collections::BTreeMap<End, u64>,
    violations: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(sample: &'a Sample) -> Self {
        Judge { sample, ends: Default::default(), violations: Vec::new() }
    }

    fn damage(&mut self, what: &str, damage: impl FnOnce(&FaultDisk)) {
        let disk = self.sample.disk.process_crash();
        damage(&disk);
        match judge_file(self.sample, &disk) {
            Ok(end) => *self.ends.entry(end).or_insert(0) += 1,
            Err(violation) => self.violations.push(format!("{what}: {violation}")),
        }
    }

    #[track_caller]
    fn end(self, name: &str, floor: u64) {
        let cases = self.ends.values().sum::<u64>() + self.violations.len() as u64;
        let of = |end| self.ends.get(&end).copied().unwrap_or(0);
        let more = format!(
            "refused={} unaffected={} told_later={} bad={}",
            of(End::Refused),
            of(End::Unaffected),
            of(End::ToldLater),
            self.violations.len()
        );
        for violation in self.violations.iter().step_by(self.violations.len().div_ceil(12).max(1)) {
            println!("{name}: {violation}");
        }
        assert!(self.violations.is_empty(), "{name}: {} of {cases}: {more}; seed {}", self.violations.len(), seed());
        Tally { cases, faults: cases, unknown: 0 }.end(name, floor, more);
    }
}

fn flip_all(clean: bool, name: &str) {
    let sample = sample(seed(), clean);
    let len = sample.disk.export(FILE).unwrap().len() as u64;
    let every = if is_long() { 1 } else { 16 };
    let mut judge = Judge::new(&sample);
    let mut random = SplitMix::new(seed());
    // Not the same place in each stretch.
    let mut at = random.below(every);
    while at < len {
        let mask = 1 << random.below(8);
        judge.damage(&format!("byte {at} mask {mask}"), |disk| disk.flip(FILE, at, mask));
        at += if every == 1 { 1 } else { 1 + random.below(2 * every - 1) };
    }
    judge.end(name, len / every / 2);
}

#[test]
fn t07_a_flipped_byte_of_a_file_closed_in_order() {
    flip_all(true, "T7-flips-clean");
}

#[test]
fn t07_a_flipped_byte_of_a_file_that_was_not_closed() {
    flip_all(false, "T7-flips-crashed");
}

/// Every bit of redb's header, every value of the byte of flags, which no checksum covers, and such
/// values together with damage anywhere else: found by `damaged_file`, after 47,915 runs.
#[test]
fn t07_the_header() {
    for clean in [true, false] {
        let sample = sample(seed() + 4, clean);
        let file = sample.disk.export(FILE).unwrap();
        let mut judge = Judge::new(&sample);
        for at in 0..320 {
            for bit in 0..8 {
                judge.damage(&format!("byte {at} bit {bit}"), |disk| disk.flip(FILE, at, 1 << bit));
            }
        }
        for change in 1..=255 {
            judge.damage(&format!("flags changed by {change}"), |disk| disk.flip(FILE, FLAGS, change));
        }
        let step = if is_long() { 1 } else { 5 };
        let others: Vec<u64> = (10..320).chain((512..file.len() as u64).step_by(512)).step_by(step).collect();
        // Two faults that are a power loss between the phases: the bit, and the commit that it named.
        let before = sample.at_the_commit_before();
        let mut opened_before = 0;
        for change in 1..16 {
            for &at in &others {
                let what = format!("flags changed by {change}, and byte {at}");
                let damage = |disk: &FaultDisk| {
                    disk.flip(FILE, FLAGS, change);
                    disk.flip(FILE, at, 0x55);
                };
                if change & SECOND == 0 || change & TWO_PHASE != 0 {
                    judge.damage(&what, damage);
                    continue;
                }
                let disk = sample.disk.process_crash();
                damage(&disk);
                if let Err(violation) = judge_file(&sample, &disk) {
                    let disk = sample.disk.process_crash();
                    damage(&disk);
                    opened_before += 1;
                    assert!(!clean, "{what}: {violation}");
                    judge_file(&before, &disk).unwrap_or_else(|other| panic!("{what}: {violation}; {other}"));
                }
            }
        }
        assert_eq!(opened_before == 0, clean, "the limit that docs/FAULTS.md names is a limit no more");
        judge.end(if clean { "T7-header-clean" } else { "T7-header-crashed" }, 3000);
    }
}

#[test]
fn t07_sectors_pages_lengths() {
    for clean in [true, false] {
        let sample = sample(seed() + 1, clean);
        let len = sample.disk.export(FILE).unwrap().len() as u64;
        let mut judge = Judge::new(&sample);
        let step = if is_long() { 1 } else { 2 };
        for sector in (0..len / 512).step_by(step) {
            judge.damage(&format!("sector {sector} zeroed"), |disk| disk.zero_sector(FILE, sector));
        }
        for page in 0..len / 4096 {
            for other in (page + 1..len / 4096).step_by(if is_long() { 1 } else { 7 }) {
                judge.damage(&format!("pages {page} and {other} swapped"), |disk| {
                    disk.swap_pages(FILE, page, other, 4096)
                });
            }
        }
        for cut in (0..len).step_by(if is_long() { 512 } else { 4096 }) {
            judge.damage(&format!("cut to {cut}"), |disk| disk.truncate(FILE, cut));
            judge.damage(&format!("cut to {}", cut + 1), |disk| disk.truncate(FILE, cut + 1));
        }
        judge.damage("grown", |disk| disk.truncate(FILE, len + 4096));
        judge.damage("gone", |disk| assert!(disk.lose(FILE)));
        judge.end(if clean { "T7-sectors-clean" } else { "T7-sectors-crashed" }, 150);
    }
}

#[test]
fn t07_the_anchor() {
    for clean in [true, false] {
        let sample = sample(seed() + 2, clean);
        let len = sample.disk.export(ANCHOR).unwrap().len() as u64;
        let mut judge = Judge::new(&sample);
        for at in 0..len {
            for bit in 0..8 {
                judge.damage(&format!("anchor byte {at} bit {bit}"), |disk| disk.flip(ANCHOR, at, 1 << bit));
            }
            judge.damage(&format!("anchor cut to {at}"), |disk| disk.truncate(ANCHOR, at));
        }
        judge.damage("anchor gone", |disk| assert!(disk.lose(ANCHOR)));
        assert_eq!(judge.ends.get(&End::Unaffected), None, "a damaged anchor vouches for nothing");
        judge.end(if clean { "T7-anchor-clean" } else { "T7-anchor-crashed" }, 500);
    }
}

/// Older copies of the file, taken between opens and inside one, put in place with the newest anchor.
#[test]
fn t07_an_older_copy_is_refused() {
    let mut tally = Tally::default();
    let mut driver = run(seed() + 3, 10);
    let mut copies = Vec::new();
    for round in 0..12_u64 {
        for step in 0..6 {
            let number = round * 6 + step;
            let ledger = driver.ledger.as_ref().unwrap();
            let grant = ledger.claim(&filler(1000 + number)).unwrap().granted().unwrap();
            copies.push((number, driver.disk.snapshot(FILE).unwrap()));
            let _ = grant.complete("done").unwrap();
            copies.push((number, driver.disk.snapshot(FILE).unwrap()));
        }
        if round % 3 == 2 {
            driver.step(Step::Reopen).unwrap();
            copies.push((round * 6 + 5, driver.disk.snapshot(FILE).unwrap()));
        } else {
            // The anchor follows within a second; here at once.
            driver.step(Step::Advance { by: 2 }).unwrap();
            let ledger = driver.ledger.as_ref().unwrap();
            let _ = ledger.claim(&filler(5000 + round)).unwrap().granted().unwrap().complete("").unwrap();
            driver.step(Step::Advance { by: 2 }).unwrap();
        }
    }
    driver.step(Step::Reopen).unwrap();
    let newest = driver.disk.export(FILE).unwrap();
    for closed in [false, true] {
        if closed {
            driver.grants.clear();
            driver.tickets.clear();
            driver.ledger.take().unwrap().close().unwrap();
        }
        for (number, copy) in &copies {
            let disk = driver.disk.process_crash();
            if copy.to_bytes() == newest {
                continue;
            }
            disk.restore(FILE, copy);
            match options(&disk, &driver.clock.clone_hands()).open(FILE) {
                Err(error) if is_told(&error) => {}
                Err(error) => panic!("copy after claim {number}: {error:?}"),
                Ok(ledger) => {
                    // Only where nothing of the ledger differs may an older copy be taken.
                    let all = (0..72).all(|number| {
                        ledger
                            .check(filler(1000 + number).key())
                            .is_ok_and(|view| view.standing() == onceledger::Standing::Done)
                    });
                    assert!(all, "an older copy, from after claim {number}, was opened as if it were the newest");
                }
            }
            disk.stop();
            tally.cases += 1;
            tally.faults += 1;
        }
    }
    tally.end("T7-copies", 200, "");
}

/// A checksum is bound to the row's number: the bytes of another row, whole and good, are not taken.
#[test]
fn t07_a_row_in_anothers_place_is_seen() {
    use onceledger::testkit::seam;
    let body = seam::resealed(7, b"the outcome of row 7");
    assert!(seam::body_is_whole(7, &body));
    assert!(!seam::body_is_whole(8, &body), "a body was taken for that of another row");
}

#[test]
fn t07_without_faults() {
    for clean in [true, false] {
        let sample = sample(seed(), clean);
        let disk = sample.disk.process_crash();
        assert_eq!(judge_file(&sample, &disk), Ok(End::Unaffected));
        // The sample itself is what the model allows.
        let mut model = sample.model.clone();
        let now_ms = crate::driver::ledger_ms(&sample.clock);
        for (key, stood) in sample.keys.iter().zip(&sample.stands).take(usize::from(crate::driver::KEYS)) {
            model.call(key, now_ms, &Call::Check, &Saw::Stands(stood.clone())).unwrap();
        }
        let _ = Terms::default();
    }
    Tally { cases: 2, faults: 0, unknown: 0 }.end("T7-without-faults", 2, "");
}
