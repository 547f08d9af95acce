//! Proving an agent: its own code, run with a crash at every point there is.
//!
//! # Guide
//!
//! Write what your agent does as a function of a [`World`]: open the ledger with [`World::open`],
//! do the work, and stand in for each effect outside with [`World::effect`]. Then call
//! [`explore`]:
//!
//! ```
//! use onceledger::testkit::{World, explore};
//! use onceledger::{Claim, EffectError, Key, Scope};
//!
//! fn agent(world: &World) -> onceledger::Result<()> {
//!     let ledger = world.open()?;
//!     let key = Key::action(&Scope::new("acme/support")?, "refund", ["ord_42"])?;
//!     let claim = Claim::from_json(key, r#"{"amount":79}"#)?;
//!     let _ = ledger.once(&claim, |_grant| {
//!         world.effect("refund ord_42");
//!         Ok::<_, EffectError>("refunded")
//!     })?;
//!     ledger.close().map(drop)
//! }
//!
//! let report = explore(agent);
//! assert!(report.crashes() > 50);
//! report.assert_at_most_once();
//! ```
//!
//! What happens: the agent runs once without a crash, and its storage operations and boundaries are
//! counted. Then it runs again and again, and dies each time at another point: at each storage
//! operation, and before and after each effect. For each death the machine is left in several
//! states: only the process is gone; the power is gone and nothing that was not synced survives; or
//! some of it does, in whole or torn. In every one of those states the agent is started again, as
//! its supervisor would, and runs to its end. What an effect did outside stays done.
//!
//! **The rule.** For each effect name, effects are at most 1, plus the decisions that one did not
//! happen, which the agent reports with [`World::decided_not_done`]. A name with more is a
//! [`Duplicate`], with the point of death that made it.
//!
//! **What a death is.** At a boundary the agent's thread unwinds, without a message, out of the call
//! of [`World::effect`] or [`World::step`]. At a storage operation that operation and all after it
//! fail, and the next boundary unwinds. Code that catches panics meets the next boundary then. An
//! effect is had only by a living process.
//!
//! **What must be the same every time.** Run the agent on one thread, and let it take the time from
//! [`World::clock`]. The ledger of [`World::open`] has no threads of its own, a faulty disk and a
//! fake clock.
//!
//! **What it cannot know.** Whether your real effect is one effect: an HTTP call that your client
//! library repeats by itself is several. [`FakeProvider`](super::FakeProvider) counts those.
//!
//! The same agent without its claim is the test of the test: it must be reported. See
//! `examples/prove_your_agent.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{CrashOptions, FakeClock, FaultDisk};
use crate::{Ledger, Options, Result};

/// The machine an agent runs on: a disk, a clock, and the outside where effects happen.
#[derive(Debug)]
pub struct World {
    disk: FaultDisk,
    clock: FakeClock,
    outside: RefCell<Outside>,
    boundaries: Cell<u64>,
    dies_at: Cell<u64>,
    dead: Cell<bool>,
    /// The boundary at which the process died.
    died: RefCell<Option<String>>,
}

#[derive(Clone, Debug, Default)]
struct Outside {
    effects: BTreeMap<String, u64>,
    not_done: BTreeMap<String, u64>,
}

/// What a dead process unwinds with.
struct Died;

const LEDGER: &str = "/agent.redb";

impl World {
    fn new(disk: FaultDisk, clock: FakeClock, outside: Outside) -> Self {
        World {
            disk,
            clock,
            outside: RefCell::new(outside),
            boundaries: Cell::new(0),
            dies_at: Cell::new(u64::MAX),
            dead: Cell::new(false),
            died: RefCell::new(None),
        }
    }

    /// The options that put a ledger into this world: its disk, its clock, no threads.
    pub fn options(&self) -> Options {
        Options::new().disk(Arc::new(self.disk.clone())).clock(Arc::new(self.clock.clone())).threads(false)
    }

    /// Where the ledger is.
    pub fn path(&self) -> &Path {
        Path::new(LEDGER)
    }

    /// Opens the agent's ledger, or creates it where there is none.
    ///
    /// # Errors
    /// As [`Options::open_or_create`].
    pub fn open(&self) -> Result<Ledger> {
        self.options().open_or_create(LEDGER)
    }

    /// The time in this world.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    /// Has an effect on the outside, with a boundary before and after it at which the process may
    /// die. Gives back how many effects of this name there have been, this one included.
    pub fn effect(&self, name: &str) -> u64 {
        self.boundary(|| format!("just before the effect `{name}`"));
        let count = {
            let mut outside = self.outside.borrow_mut();
            let count = outside.effects.entry(name.to_owned()).or_insert(0);
            *count += 1;
            *count
        };
        self.boundary(|| format!("just after the effect `{name}`, before anything else"));
        count
    }

    /// Asks the outside how many effects of this name there have been, as a provider's look-up
    /// would tell.
    pub fn effects_of(&self, name: &str) -> u64 {
        self.outside.borrow().effects.get(name).copied().unwrap_or(0)
    }

    /// A place where the process may die.
    pub fn step(&self, name: &str) {
        self.boundary(|| format!("at the step `{name}`"));
    }

    /// Notes a decision that an effect of this name did not happen: a release, or a resolve as not
    /// done. One more effect of that name is then right.
    pub fn decided_not_done(&self, name: &str) {
        *self.outside.borrow_mut().not_done.entry(name.to_owned()).or_insert(0) += 1;
    }

    fn boundary(&self, words: impl FnOnce() -> String) {
        let number = self.boundaries.get() + 1;
        self.boundaries.set(number);
        if !self.dead.get() && (number == self.dies_at.get() || self.disk.stopped()) {
            if number == self.dies_at.get() {
                self.died.replace(Some(words()));
            }
            self.dead.set(true);
            self.disk.stop();
        }
        if self.dead.get() {
            resume_unwind(Box::new(Died));
        }
    }
}

/// Where the process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Operation(u64),
    Boundary(u64),
}

/// How the search is made. The defaults are those of [`explore`].
#[derive(Clone, Debug)]
pub struct Explorer {
    seed: u64,
    images_max: usize,
    again_every: usize,
    pause: Duration,
}

impl Default for Explorer {
    fn default() -> Self {
        Explorer { seed: 0, images_max: 12, again_every: 7, pause: Duration::from_secs(120) }
    }
}

/// Runs an agent with a crash at every point, and says what came of it. See the [guide](self).
///
/// # Panics
/// Where the agent panics by itself, or makes no storage operation and no effect.
pub fn explore<E: fmt::Debug>(agent: impl Fn(&World) -> std::result::Result<(), E>) -> Report {
    Explorer::new().run(agent)
}

impl Explorer {
    /// The defaults.
    pub fn new() -> Self {
        Explorer::default()
    }

    /// For what is sampled. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// For each death, at most this many states that a power loss can leave, beside the one in which
    /// nothing unsynced survives. Default 12.
    #[must_use]
    pub fn images_max(mut self, count: usize) -> Self {
        self.images_max = count;
        self
    }

    /// In every so many-th restart the agent dies once more, at another point each time; 0 for never.
    /// Default 7.
    #[must_use]
    pub fn again_every(mut self, every: usize) -> Self {
        self.again_every = every;
        self
    }

    /// How long the machine is away before the agent is started again. Default: 2 minutes, longer
    /// than the ledger waits before it asks a probe.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Runs the search.
    ///
    /// # Panics
    /// As [`explore`].
    pub fn run<E: fmt::Debug>(&self, agent: impl Fn(&World) -> std::result::Result<(), E>) -> Report {
        let world = World::new(FaultDisk::new(self.seed), FakeClock::new(), Outside::default());
        let run = live(&world, &agent);
        let mut report = Report { first_run: run, ..Report::default() };
        report.count(&world, "without any crash");
        let (operations, boundaries) = (world.disk.operations(), world.boundaries.get());
        assert!(operations + boundaries > 0, "the agent did nothing: there is nothing to prove");
        report.operations = operations;
        report.boundaries = boundaries;
        let trace = world.disk.trace();
        // Boundaries first: they say most about the agent.
        let points = (1..=boundaries).map(Point::Boundary).chain((1..=operations).map(Point::Operation));
        for point in points {
            self.crash(point, &agent, &trace, &mut report);
        }
        report
    }

    fn crash<E: fmt::Debug>(
        &self,
        point: Point,
        agent: &impl Fn(&World) -> std::result::Result<(), E>,
        trace: &[String],
        report: &mut Report,
    ) {
        let world = World::new(FaultDisk::new(self.seed), FakeClock::new(), Outside::default());
        match point {
            Point::Operation(number) => world.disk.stop_at(number),
            Point::Boundary(number) => world.dies_at.set(number),
        }
        die(&world, agent);
        let died = world.died.borrow().clone();
        let place = died.unwrap_or_else(|| place_of(point, trace));
        report.crashes += 1;
        let kept = [world.disk.process_crash(), world.disk.power_loss()];
        let options = CrashOptions { seed: self.seed, ..CrashOptions::default() };
        let images = world.disk.crash_images(&options);
        let stride = images.len().div_ceil(self.images_max.max(1)).max(1);
        let images = images.step_by(stride).take(self.images_max);
        for (number, disk) in kept.into_iter().chain(images).enumerate() {
            let clock = world.clock.clone_hands();
            if number == 0 {
                clock.advance(self.pause);
            } else {
                clock.reboot(self.pause);
            }
            let place = format!("the process died {place}; {}", disk.origin());
            self.restart(disk, &clock, world.outside.borrow().clone(), agent, &place, report);
        }
    }

    /// Starts the agent again on what a crash left; sometimes it dies once more on the way.
    fn restart<E: fmt::Debug>(
        &self,
        disk: FaultDisk,
        clock: &FakeClock,
        outside: Outside,
        agent: &impl Fn(&World) -> std::result::Result<(), E>,
        place: &str,
        report: &mut Report,
    ) {
        report.states += 1;
        let world = World::new(disk, clock.clone(), outside);
        let again = self.again_every > 0 && report.states.is_multiple_of(self.again_every as u64);
        if !again {
            let ended = live(&world, agent);
            report.restarted(&ended);
            report.count(&world, place);
            return;
        }
        // Another point each time, and every one of them sooner or later.
        let at = (report.states / self.again_every as u64) % (report.operations + report.boundaries) + 1;
        if at > report.operations {
            world.dies_at.set(at - report.operations);
        } else {
            world.disk.stop_at(at);
        }
        die(&world, agent);
        world.disk.stop();
        report.states += 1;
        let clock = world.clock.clone_hands();
        clock.advance(self.pause);
        let place = format!("{place}; started again, it died at its point {at}");
        let next = World::new(world.disk.process_crash(), clock, world.outside.borrow().clone());
        let ended = live(&next, agent);
        report.restarted(&ended);
        report.count(&next, &place);
    }
}

/// Runs the agent to its end. A panic of its own goes on.
fn live<E: fmt::Debug>(
    world: &World,
    agent: &impl Fn(&World) -> std::result::Result<(), E>,
) -> std::result::Result<(), String> {
    let ended = agent(world).map_err(|error| format!("{error:?}"));
    world.disk.stop();
    ended
}

/// Runs the agent to its death. What it answers then does not matter.
fn die<E: fmt::Debug>(world: &World, agent: &impl Fn(&World) -> std::result::Result<(), E>) {
    match catch_unwind(AssertUnwindSafe(|| agent(world).map_err(|error| format!("{error:?}")))) {
        Ok(_) => {}
        Err(payload) if payload.is::<Died>() => {}
        Err(payload) if world.dead.get() || world.disk.stopped() => drop(payload),
        Err(payload) => resume_unwind(payload),
    }
    world.disk.stop();
}

fn place_of(point: Point, trace: &[String]) -> String {
    match point {
        Point::Operation(number) => {
            let at = usize::try_from(number - 1).ok().and_then(|at| trace.get(at));
            format!("before storage operation {}", at.map_or("?", String::as_str))
        }
        Point::Boundary(number) => format!("at boundary {number}"),
    }
}

/// An effect that happened more often than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The effect's name.
    pub effect: String,
    /// How often it happened.
    pub times: u64,
    /// How often it may have: 1 + the decisions that it did not happen.
    pub allowed: u64,
    /// Where the process died, and what the disk had then.
    pub crash: String,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Duplicate { effect, times, allowed, crash } = self;
        write!(f, "effect `{effect}` happened {times} times where {allowed} is right: {crash}")
    }
}

/// What a search found.
#[derive(Clone, Debug)]
#[must_use]
pub struct Report {
    crashes: u64,
    states: u64,
    operations: u64,
    boundaries: u64,
    duplicates: Vec<Duplicate>,
    duplicate_count: u64,
    stuck: u64,
    failed: BTreeSet<String>,
    first_run: std::result::Result<(), String>,
    runs_with_all: u64,
    names: BTreeSet<String>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            crashes: 0,
            states: 0,
            operations: 0,
            boundaries: 0,
            duplicates: Vec::new(),
            duplicate_count: 0,
            stuck: 0,
            failed: BTreeSet::new(),
            first_run: Ok(()),
            runs_with_all: 0,
            names: BTreeSet::new(),
        }
    }
}

impl Report {
    /// How many points the process died at.
    pub fn crashes(&self) -> u64 {
        self.crashes
    }

    /// How many times the agent was started again on what a crash had left.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The first hundred effects that happened too often.
    pub fn duplicates(&self) -> &[Duplicate] {
        &self.duplicates
    }

    /// How many restarts ended without an effect that the first run had: held back until somebody
    /// decides, or not yet tried again.
    pub fn held_back(&self) -> u64 {
        self.stuck
    }

    /// The errors with which restarted agents ended, each once.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(String::as_str)
    }

    /// # Panics
    /// Where an effect happened too often, or the first run, without a crash, failed.
    #[track_caller]
    pub fn assert_at_most_once(&self) {
        assert!(self.first_run.is_ok(), "the agent fails without any crash: {:?}", self.first_run);
        assert!(self.duplicates.is_empty(), "{self}");
    }

    fn restarted(&mut self, ended: &std::result::Result<(), String>) {
        const FAILURES_MAX: usize = 32;
        if let Err(text) = ended
            && self.failed.len() < FAILURES_MAX
        {
            self.failed.insert(text.clone());
        }
    }

    fn count(&mut self, world: &World, crash: &str) {
        const DUPLICATES_MAX: usize = 100;
        let outside = world.outside.borrow();
        if self.crashes == 0 {
            self.names = outside.effects.keys().cloned().collect();
        }
        let missing = self.names.iter().any(|name| !outside.effects.contains_key(name));
        self.stuck += u64::from(missing);
        self.runs_with_all += u64::from(!missing);
        for (effect, times) in &outside.effects {
            let allowed = 1 + outside.not_done.get(effect).copied().unwrap_or(0);
            if *times > allowed {
                self.duplicate_count += 1;
                if self.duplicates.len() < DUPLICATES_MAX {
                    let (effect, times, crash) = (effect.clone(), *times, crash.to_owned());
                    self.duplicates.push(Duplicate { effect, times, allowed, crash });
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        writeln!(
            f,
            "{} crash points ({} storage operations, {} boundaries), {} restarts: {} duplicates, {} held back, {} complete",
            self.crashes,
            self.operations,
            self.boundaries,
            self.states,
            self.duplicate_count,
            self.stuck,
            self.runs_with_all,
        )?;
        for duplicate in self.duplicates.iter().take(SHOWN) {
            writeln!(f, "  {duplicate}")?;
        }
        if self.duplicate_count > SHOWN as u64 {
            writeln!(f, "  and {} more", self.duplicate_count - SHOWN as u64)?;
        }
        for failure in &self.failed {
            writeln!(f, "  a restarted agent ended with: {failure}")?;
        }
        Ok(())
    }
}
