//! The time, read and carried. Nothing else in the crate reads a clock.
//!
//! A [`Clock`] gives raw readings: the wall clock, the boot-time clock (which goes on while the
//! machine sleeps), and the identity of the running boot. [`Times`] turns readings into the two
//! times of the ledger (P11): *early* takes the larger advance of the two clocks and ends leases,
//! approvals and resend windows; *late* takes the smaller and ends retention. Neither ever runs
//! backwards, and neither is ever set from a bare wall reading.

use std::fmt;

/// One reading of a machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, in nanoseconds since 1970 (0 for anything earlier).
    pub wall_ns: u128,
    /// Time since boot, sleep included, in nanoseconds.
    pub boot_ns: u128,
    /// Which boot this is; all zero where the platform does not say.
    pub boot_id: [u8; 16],
}

/// A source of readings.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Reads both clocks now.
    fn read(&self) -> Reading;
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    boot_id: [u8; 16],
    #[cfg(not(target_os = "linux"))]
    started: std::time::Instant,
}

impl SystemClock {
    /// Learns the running boot's identity; all zero where the platform does not say, and then
    /// every reopening is judged as one across a boot, by the wall clock alone.
    pub fn new() -> Self {
        SystemClock {
            boot_id: read_boot_id().unwrap_or([0; 16]),
            #[cfg(not(target_os = "linux"))]
            started: std::time::Instant::now(),
        }
    }

    #[cfg(target_os = "linux")]
    fn boot_ns(&self) -> u128 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u128::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u128::try_from(time.tv_nsec).unwrap_or(0)
    }

    #[cfg(not(target_os = "linux"))]
    fn boot_ns(&self) -> u128 {
        self.started.elapsed().as_nanos()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Reading { wall_ns: wall.map_or(0, |since| since.as_nanos()), boot_ns: self.boot_ns(), boot_id: self.boot_id }
    }
}

/// Linux names each boot by a UUID.
fn read_boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.chars().filter(char::is_ascii_hexdigit);
    let digits: Vec<u8> = digits.filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    let mut id = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Some(id)
}

const NS_PER_MS: u128 = 1_000_000;

/// How far the two clocks may drift apart before a new base is taken. Readings are compared with
/// one base and not with each other, so that the jitter of single readings does not add up.
const DRIFT_NS: u128 = 100 * NS_PER_MS;

/// A moment in the ledger's times, in milliseconds since the ledger was created, and the wall
/// clock for people, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub early: u64,
    pub late: u64,
    /// Late time rounded up: what is written, so that no retention that begins now ends early.
    pub late_up: u64,
    pub wall: u64,
}

/// The times as they are written in every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Stamp {
    pub early_ms: u64,
    pub late_ms: u64,
    pub wall_ms: u64,
    pub boot_ms: u64,
    pub boot_id: [u8; 16],
}

/// The two times, carried from a stamp by the rules above.
#[derive(Debug)]
pub(crate) struct Times {
    clock: std::sync::Arc<dyn Clock>,
    gap_max_ns: u128,
    state: parking_lot::Mutex<State>,
    coarse_early: std::sync::atomic::AtomicU64,
    coarse_late: std::sync::atomic::AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    base: Reading,
    /// Whether the base was read by this process: its boot-time clock is then comparable even
    /// where the platform has no boot id.
    own_base: bool,
    base_early: u128,
    base_late: u128,
    early: u128,
    late: u128,
}

impl Times {
    /// Goes on from the stamp that the last commit wrote; `None` for a new ledger.
    pub fn resume(clock: std::sync::Arc<dyn Clock>, gap_max_ms: u64, stamp: Option<Stamp>) -> Self {
        let reading = clock.read();
        let gap_max_ns = u128::from(gap_max_ms) * NS_PER_MS;
        let mut state = State { base: reading, own_base: true, base_early: 0, base_late: 0, early: 0, late: 0 };
        if let Some(stamp) = stamp {
            state = State {
                base: Reading {
                    wall_ns: u128::from(stamp.wall_ms) * NS_PER_MS,
                    boot_ns: u128::from(stamp.boot_ms) * NS_PER_MS,
                    boot_id: stamp.boot_id,
                },
                own_base: false,
                base_early: u128::from(stamp.early_ms) * NS_PER_MS,
                base_late: u128::from(stamp.late_ms) * NS_PER_MS,
                early: u128::from(stamp.early_ms) * NS_PER_MS,
                late: u128::from(stamp.late_ms) * NS_PER_MS,
            };
            state.advance(reading, gap_max_ns);
            state.rebase(reading);
        }
        let times = Times {
            clock,
            gap_max_ns,
            state: parking_lot::Mutex::new(state),
            coarse_early: 0.into(),
            coarse_late: 0.into(),
        };
        times.now();
        times
    }

    /// Reads the clocks. Costs two clock readings and a short lock.
    pub fn now(&self) -> Now {
        let reading = self.clock.read();
        self.take(reading).0
    }

    /// Reads the clocks, and says what to write with the next commit.
    pub fn stamp(&self) -> (Now, Stamp) {
        let reading = self.clock.read();
        self.take(reading)
    }

    fn take(&self, reading: Reading) -> (Now, Stamp) {
        let mut state = self.state.lock();
        state.advance(reading, self.gap_max_ns);
        let skew = state.skew(reading);
        if skew > DRIFT_NS || state.base.boot_id != reading.boot_id {
            state.rebase(reading);
        }
        let now = Now {
            early: to_ms(state.early.saturating_add(NS_PER_MS - 1)),
            late: to_ms(state.late),
            late_up: to_ms(state.late.saturating_add(NS_PER_MS - 1)),
            wall: to_ms(reading.wall_ns),
        };
        // Under the lock: the coarse times never run backwards.
        self.coarse_early.store(now.early, std::sync::atomic::Ordering::Relaxed);
        self.coarse_late.store(now.late, std::sync::atomic::Ordering::Relaxed);
        let stamp = Stamp {
            early_ms: now.early,
            late_ms: now.late,
            wall_ms: now.wall,
            boot_ms: to_ms(reading.boot_ns),
            boot_id: reading.boot_id,
        };
        (now, stamp)
    }

    /// The times as they were when somebody last read the clock: behind, never ahead, and so
    /// erring towards holding. The open ledger refreshes them at least once a second.
    #[inline]
    pub fn coarse(&self) -> Now {
        Now {
            early: self.coarse_early.load(std::sync::atomic::Ordering::Relaxed),
            late: self.coarse_late.load(std::sync::atomic::Ordering::Relaxed),
            late_up: 0,
            wall: 0,
        }
    }

    /// The boot-time clock in milliseconds: for waits and pauses inside this process only.
    pub fn boot_ms(&self) -> u64 {
        to_ms(self.clock.read().boot_ns)
    }
}

impl State {
    fn advance(&mut self, reading: Reading, gap_max_ns: u128) {
        let wall = reading.wall_ns.saturating_sub(self.base.wall_ns);
        if cfg!(onceledger_canary = "wall_clock_for_both_times") {
            self.early = self.early.max(self.base_early.saturating_add(wall));
            self.late = self.late.max(self.base_late.saturating_add(wall));
            return;
        }
        let known = self.own_base || reading.boot_id != [0; 16];
        let same_boot = known && self.base.boot_id == reading.boot_id;
        let (early, late) = if same_boot {
            let boot = reading.boot_ns.saturating_sub(self.base.boot_ns);
            (boot.max(wall.min(gap_max_ns)), boot.min(wall))
        } else {
            let believed = wall.min(gap_max_ns);
            // The new boot has been up for this long, whatever the wall clock says.
            let up = if reading.boot_id == [0; 16] { 0 } else { reading.boot_ns };
            (believed.max(up.min(gap_max_ns)), believed)
        };
        self.early = self.early.max(self.base_early.saturating_add(early));
        self.late = self.late.max(self.base_late.saturating_add(late));
    }

    fn skew(&self, reading: Reading) -> u128 {
        let wall = reading.wall_ns.abs_diff(self.base.wall_ns);
        let boot = reading.boot_ns.abs_diff(self.base.boot_ns);
        if reading.wall_ns < self.base.wall_ns { wall.saturating_add(boot) } else { wall.abs_diff(boot) }
    }

    fn rebase(&mut self, reading: Reading) {
        self.base = reading;
        self.own_base = true;
        self.base_early = self.early;
        self.base_late = self.late;
    }
}

fn to_ms(ns: u128) -> u64 {
    u64::try_from(ns / NS_PER_MS).unwrap_or(u64::MAX)
}
