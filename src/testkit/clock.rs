//! A clock that shows what it is told to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::SplitMix;
use crate::engine::clock::{Clock, Reading};

const MS: u128 = 1_000_000;
/// No reading is later than this many milliseconds, in nanoseconds.
const LAST_NS: u128 = u64::MAX as u128 * MS;

/// A clock whose wall and boot-time parts are set apart. A clone is another handle on the same
/// clock.
///
/// It starts at 2026-01-01 00:00:00 UTC, one hour after its first boot, and moves only when told
/// to. Everything saturates at 0 and at `u64::MAX` milliseconds.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: Reading,
    boots: u64,
    wall_frozen: bool,
    boot_frozen: bool,
}

impl Hands {
    fn pass(&mut self, wall: Duration, boot: Duration) {
        if !self.wall_frozen {
            self.now.wall_ns = (self.now.wall_ns + wall.as_nanos()).min(LAST_NS);
        }
        if !self.boot_frozen {
            self.now.boot_ns = (self.now.boot_ns + boot.as_nanos()).min(LAST_NS);
        }
    }

    fn boot(&mut self) {
        self.boots += 1;
        let mut random = SplitMix::new(self.boots);
        let halves = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        self.now.boot_id = halves.to_le_bytes();
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        FakeClock::new()
    }
}

impl FakeClock {
    /// A clock at its start.
    pub fn new() -> Self {
        let now = Reading { wall_ns: 1_767_225_600_000 * MS, boot_ns: 3_600_000 * MS, boot_id: [0; 16] };
        let mut hands = Hands { now, boots: 0, wall_frozen: false, boot_frozen: false };
        hands.boot();
        FakeClock(Arc::new(Mutex::new(hands)))
    }

    /// Another clock that shows the same now, and moves apart from this one.
    #[must_use]
    pub fn clone_hands(&self) -> FakeClock {
        let Hands { now, boots, wall_frozen, boot_frozen } = *self.0.lock();
        FakeClock(Arc::new(Mutex::new(Hands { now, boots, wall_frozen, boot_frozen })))
    }

    /// Time passes for both parts, but for a frozen one.
    pub fn advance(&self, time: Duration) {
        self.0.lock().pass(time, time);
    }

    /// Time passes for the wall clock only.
    pub fn advance_wall(&self, time: Duration) {
        self.0.lock().pass(time, Duration::ZERO);
    }

    /// Time passes for the boot-time clock only.
    pub fn advance_boot(&self, time: Duration) {
        self.0.lock().pass(Duration::ZERO, time);
    }

    /// Somebody sets the wall clock by so many milliseconds, forward or back, frozen or not.
    pub fn jump_wall_ms(&self, by: i128) {
        let mut hands = self.0.lock();
        let ns = by.unsigned_abs().saturating_mul(MS);
        hands.now.wall_ns = if by < 0 {
            hands.now.wall_ns.saturating_sub(ns)
        } else {
            hands.now.wall_ns.saturating_add(ns).min(LAST_NS)
        };
    }

    /// Somebody sets the wall clock to so many milliseconds since 1970, frozen or not.
    pub fn set_wall_ms(&self, ms: u64) {
        self.0.lock().now.wall_ns = u128::from(ms) * MS;
    }

    /// The boot-time clock shows so many milliseconds, frozen or not; back is what a kernel never
    /// does and a bug may.
    pub fn set_boot_ms(&self, ms: u64) {
        self.0.lock().now.boot_ns = u128::from(ms) * MS;
    }

    /// Gives the running boot this identity; all zero is a platform that does not say.
    pub fn set_boot_id(&self, id: [u8; 16]) {
        self.0.lock().now.boot_id = id;
    }

    /// The wall clock stands still until [`thaw`](Self::thaw).
    pub fn freeze_wall(&self) {
        self.0.lock().wall_frozen = true;
    }

    /// The boot-time clock stands still until [`thaw`](Self::thaw).
    pub fn freeze_boot(&self) {
        self.0.lock().boot_frozen = true;
    }

    /// Both stand still until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        self.freeze_wall();
        self.freeze_boot();
    }

    /// Both go on from where they stand.
    pub fn thaw(&self) {
        let mut hands = self.0.lock();
        hands.wall_frozen = false;
        hands.boot_frozen = false;
    }

    /// The machine sleeps. As with Linux's `CLOCK_BOOTTIME` the boot-time clock counts the sleep,
    /// and the wall clock is set from the hardware clock on waking. A frozen part stays frozen.
    pub fn suspend(&self, time: Duration) {
        self.0.lock().pass(time, time);
    }

    /// The machine sleeps on a platform whose boot-time clock does not count it.
    pub fn suspend_uncounted(&self, time: Duration) {
        self.0.lock().pass(time, Duration::ZERO);
    }

    /// The machine is off for some time and boots: another boot id, and boot time starts at 0. The
    /// wall clock has gone on meanwhile, but where it is frozen.
    pub fn reboot(&self, off: Duration) {
        let mut hands = self.0.lock();
        hands.pass(off, Duration::ZERO);
        hands.now.boot_ns = 0;
        hands.boot();
    }
}

impl Clock for FakeClock {
    fn read(&self) -> Reading {
        self.0.lock().now
    }
}
