//! Rows as data, interleaved rounds, medians.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::drive::{self, Clock};
use crate::options::Options;
use crate::peer::{AsyncPeer, Peer};
use crate::shelf::{self, Shelf};
use crate::table::Row;
use crate::work::{self, CHUNK};

/// One round of one side; returns its speed, more is better.
pub type Measure = Box<dyn FnMut() -> Result<f64>>;
/// Makes ready what a side needs, outside any round.
pub type Prepare = fn(&mut Bench) -> Result<Measure>;

/// One work, done by the subject and by each of its peers in turn.
pub struct Group {
    /// Stores are kept for as long as this number stays the same.
    pub stage: u32,
    /// As the table prints it.
    pub work: &'static str,
    /// Of the speed.
    pub unit: &'static str,
    /// The subject.
    pub ours: Prepare,
    /// Whom it is compared with.
    pub peers: &'static [Against],
}

/// One row: a peer and what the ratio should reach.
pub struct Against {
    /// As the table prints it.
    pub peer: &'static str,
    /// None for rows printed for orientation.
    pub at_least: Option<f64>,
    /// Whether a quick run measures it unasked.
    pub in_quick: bool,
    /// The peer.
    pub theirs: Prepare,
}

/// What rows are measured with.
pub struct Bench {
    /// The options of the run.
    pub options: Options,
    /// Filled stores.
    pub shelf: Shelf,
}

impl Bench {
    /// A bench with an empty shelf.
    pub fn new(options: Options) -> Self {
        let shelf = Shelf::new(&options.dir);
        Bench { options, shelf }
    }

    /// Where stores are made.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Length of one measurement.
    pub fn window(&self) -> Duration {
        self.options.window
    }
}

/// Measures every wanted row of the groups, in order. A side that fails costs its own rows only.
pub fn run(bench: &mut Bench, groups: &[Group]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut stage = None;
    for group in groups {
        let skips = bench.options.quick && bench.options.only.is_none();
        let wants = |against: &&Against| bench.options.wants(group.work, against.peer) && (against.in_quick || !skips);
        let wanted: Vec<&Against> = group.peers.iter().filter(wants).collect();
        if wanted.is_empty() {
            continue;
        }
        if stage.replace(group.stage) != Some(group.stage) {
            bench.shelf.clear();
        }
        let started = Instant::now();
        eprintln!("{}", group.work);
        rows.extend(contest(bench, group, &wanted));
        eprintln!("  {:.1} s", started.elapsed().as_secs_f64());
    }
    bench.shelf.clear();
    rows
}

fn contest(bench: &mut Bench, group: &Group, wanted: &[&Against]) -> Vec<Row> {
    let prepares = std::iter::once(group.ours).chain(wanted.iter().map(|against| against.theirs));
    let mut sides: Vec<Side> = prepares.map(|prepare| Side::new(prepare(bench))).collect();
    for _ in 0..bench.options.rounds {
        sides.iter_mut().for_each(Side::round);
    }
    let (ours, theirs) = (&sides[0], &sides[1..]);
    let row = |(against, theirs): (&&Against, &Side)| {
        let row = Row::new(group.work, against.peer, against.at_least, group.unit);
        match (&ours.error, &theirs.error) {
            (Some(error), _) => row.failed(format!("ours: {error}")),
            (_, Some(error)) => row.failed(error),
            (None, None) => row.compared(&ours.speeds, &theirs.speeds),
        }
    };
    wanted.iter().zip(theirs).map(row).collect()
}

struct Side {
    measure: Option<Measure>,
    speeds: Vec<f64>,
    error: Option<String>,
}

impl Side {
    fn new(prepared: Result<Measure>) -> Self {
        match prepared {
            Ok(measure) => Side { measure: Some(measure), speeds: Vec::new(), error: None },
            Err(error) => Side { measure: None, speeds: Vec::new(), error: Some(error.to_string()) },
        }
    }

    fn round(&mut self) {
        let Some(measure) = &mut self.measure else {
            return;
        };
        match measure() {
            Ok(speed) => self.speeds.push(speed),
            Err(error) => {
                self.error = Some(error.to_string());
                self.measure = None;
            }
        }
    }
}

/// Rows that start from an empty file run at least this long: an in-place peer is fastest while its tree is tiny
/// and its log unchecked, and a shorter window would show nothing else.
pub const FRESH_WINDOW_MIN: Duration = Duration::from_secs(1);

/// Claim + settle with `WAITING` futures in flight, in a store made anew for each round with `DONE` claims.
pub fn pairs_waiting_fresh<P: AsyncPeer, const WAITING: usize, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let (dir, done) = (bench.dir().to_owned(), bench.options.scaled(DONE));
    let window = bench.window().max(FRESH_WINDOW_MIN);
    Ok(Box::new(move || {
        let kept = shelf::fresh::<P>(&dir, done)?;
        drive::pairs_by_futures(&kept.store, WAITING, window)
    }))
}

/// Claim + settle with `WAITING` futures in flight, in a store filled once with `DONE` claims.
pub fn pairs_waiting_filled<P: AsyncPeer, const WAITING: usize, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let kept = bench.shelf.get::<P>(bench.options.scaled(DONE))?;
    let window = bench.window();
    Ok(Box::new(move || drive::pairs_by_futures(&kept.store, WAITING, window)))
}

/// Claim + settle by `CALLERS` threads, in a store that starts empty.
pub fn pairs_threads<P: Peer, const CALLERS: usize>(bench: &mut Bench) -> Result<Measure> {
    let (dir, window) = (bench.dir().to_owned(), bench.window());
    Ok(Box::new(move || {
        let kept = shelf::fresh::<P>(&dir, 0)?;
        drive::pairs_by_threads(&kept.store, CALLERS, window)
    }))
}

/// Look-ups of done claims with their outcome, in random order, by `READERS` threads.
pub fn checks_done<P: Peer, const READERS: usize, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let done = bench.options.scaled(DONE);
    let kept = bench.shelf.get::<P>(done)?;
    let keys: Vec<P::Key> = work::done_sample(done).map(P::key).collect();
    let window = bench.window();
    Ok(Box::new(move || drive::checks(&kept.store, &keys, READERS, CHUNK as u64, window, Clock::Wall)))
}

/// Look-ups of keys nobody claimed.
pub fn checks_vacant<P: Peer, const READERS: usize, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let kept = bench.shelf.get::<P>(bench.options.scaled(DONE))?;
    let keys: Vec<P::Key> = work::vacant_sample().map(P::key).collect();
    let window = bench.window();
    Ok(Box::new(move || drive::checks(&kept.store, &keys, READERS, 0, window, Clock::Wall)))
}

/// Look-ups of done claims by one reader, by its own CPU time, while `WRITERS` threads claim and settle.
pub fn checks_while_writing<P: Peer, const WRITERS: usize, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let done = bench.options.scaled(DONE);
    let kept = bench.shelf.get::<P>(done)?;
    let keys: Vec<P::Key> = work::done_sample(done).map(P::key).collect();
    let window = bench.window();
    Ok(Box::new(move || {
        let peer = &kept.store;
        let measure = || drive::checks(peer, &keys, 1, CHUNK as u64, window, Clock::ThreadCpu);
        drive::while_writing(peer, WRITERS, measure)
    }))
}
