//! What all suites share: floors, counts, seeds.

use std::fmt::Display;

/// The ordinary floor, or with `ONCELEDGER_FLOOR=long` the long one, with `ONCELEDGER_FLOOR=tenth` a
/// tenth of that.
pub fn floor(ordinary: u64, long: u64) -> u64 {
    match std::env::var("ONCELEDGER_FLOOR").as_deref() {
        Ok("long") => long,
        Ok("tenth") => (long / 10).max(ordinary),
        Ok("") | Err(_) => ordinary,
        Ok(other) => panic!("ONCELEDGER_FLOOR={other} is not `long` or `tenth`"),
    }
}

pub fn is_long() -> bool {
    std::env::var("ONCELEDGER_FLOOR").is_ok_and(|floor| !floor.is_empty())
}

/// The first seed of a suite: 1, or `ONCELEDGER_SEED`.
pub fn seed() -> u64 {
    std::env::var("ONCELEDGER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// What one suite saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub cases: u64,
    pub faults: u64,
    pub unknown: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.faults += other.faults;
        self.unknown += other.unknown;
    }

    /// Prints the line of the suite, and fails under its floor. Violations end a suite before this.
    #[track_caller]
    pub fn end(self, name: &str, floor: u64, more: impl Display) {
        let Tally { cases, faults, unknown } = self;
        let more = more.to_string();
        let gap = if more.is_empty() { "" } else { " " };
        println!("{name} cases={cases} faults={faults} unknown={unknown} violations=0{gap}{more}");
        assert!(cases >= floor, "{name}: {cases} cases are under the floor of {floor}");
    }
}

/// Fails with the command that replays it.
#[track_caller]
pub fn violated(name: &str, seed: u64, what: impl Display) -> ! {
    panic!(
        "{name}: violation: {what}\nreplay: ONCELEDGER_SEED={seed} cargo test --features testkit --test faults {name} -- --nocapture"
    );
}
