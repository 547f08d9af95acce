//! The pure core: what a key's record and a request make of each other (P2, P4, P5, P9, P10).
//!
//! No clock, no I/O, no lock, no allocation: everything comes in as a value and the decision goes
//! out as one. The table is the one in `docs/ARCHITECTURE.md`, and no match here has a wildcard arm.

use crate::engine::clock::Now;
use crate::engine::event::{FOREVER, Reason, RecoveryRule, VerdictRule};
use crate::outcome::Kind;

/// What the index holds of a key beside the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub fingerprint: [u8; 32],
    /// The last grant.
    pub token: u64,
    /// The sequence of the key's newest event.
    pub last: u64,
    /// In progress: the early end of the lease. Otherwise: the late time at which this standing
    /// began. Milliseconds.
    pub at: u64,
    /// Done or failed: the row of the body, 0 where none is stored. Otherwise the session's number.
    pub link: u64,
    /// Early time of the first attempt, in whole seconds, rounded down.
    pub first_attempt_s: u32,
    pub attempt: u32,
    /// Length of the body in bytes, at most `u32::MAX`.
    pub body_len: u32,
    /// How long after the settle the body and the key are kept; `u32::MAX` for ever.
    pub keep_s: u32,
    pub remember_s: u32,
    /// The wall clock when this standing began, in seconds since 1970.
    pub since_s: u32,
    pub rule: PackedRule,
    pub standing: Stored,
    pub form: Form,
    /// How many rows of the log this key's chain has; saturates.
    pub rows: u16,
}

/// A [`RecoveryRule`] in four bytes: a live record must stay small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedRule(u32);

impl PackedRule {
    const HOLD: u32 = 0;
    const RECONCILE: u32 = u32::MAX;

    pub fn new(rule: RecoveryRule) -> Self {
        PackedRule(match rule {
            // A window of no length never lets anything through: it holds.
            RecoveryRule::Hold => PackedRule::HOLD,
            RecoveryRule::Reconcile => PackedRule::RECONCILE,
            RecoveryRule::Resend(window_s) => window_s.min(u32::MAX - 1),
        })
    }

    pub fn rule(self) -> RecoveryRule {
        match self.0 {
            PackedRule::HOLD => RecoveryRule::Hold,
            PackedRule::RECONCILE => RecoveryRule::Reconcile,
            window_s => RecoveryRule::Resend(window_s),
        }
    }
}

/// What a body is and whether it is an error, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(u8);

impl Form {
    const ERROR: u8 = 0x80;
    const MARKED: u8 = 0x40;

    pub fn new(kind: Kind, error: bool) -> Self {
        let kind = match kind {
            Kind::Json => 0,
            Kind::Text => 1,
            Kind::Binary => 2,
        };
        Form(if error { kind | Form::ERROR } else { kind })
    }

    pub fn code(self) -> u8 {
        self.0
    }

    #[inline]
    pub fn from_code(code: u8) -> Self {
        Form(code)
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 & !(Form::ERROR | Form::MARKED) {
            0 => Kind::Json,
            1 => Kind::Text,
            2.. => Kind::Binary,
        }
    }

    #[inline]
    pub fn is_error(self) -> bool {
        self.0 & Form::ERROR != 0
    }

    /// Notes that the standing is a doubt which is not recorded yet.
    pub fn marked(self) -> Self {
        Form(self.0 | Form::MARKED)
    }

    /// Without that note.
    pub fn unmarked(self) -> Self {
        Form(self.0 & !Form::MARKED)
    }

    /// Whether the doubt is still to be recorded.
    pub fn is_marked(self) -> bool {
        self.0 & Form::MARKED != 0
    }
}

/// A standing as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Vacant,
    InProgress,
    Done,
    Failed,
    Uncertain(Reason),
}

/// Whether the process that holds a grant is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Alive,
    Gone,
    Unknown,
}

/// A standing as a caller sees it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Vacant,
    InProgress,
    /// Whether the body is within its retention.
    Done {
        kept: bool,
    },
    Failed {
        kept: bool,
    },
    Uncertain(Reason),
}

/// What a caller asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To be the one who runs the action.
    Claim { fingerprint: [u8; 32], rule: RecoveryRule, probe: Probe },
    /// To record an outcome. `equal`: a settled record under this token says the same.
    Settle { token: u64, equal: bool },
    /// To move the lease.
    Renew { token: u64 },
    /// To give the key back: certainly no effect.
    Release { token: u64 },
    /// To record that the grant ended without a settle.
    Doubt { token: u64 },
    /// To decide an uncertain claim.
    Resolve { token: u64, verdict: VerdictRule, force: bool },
}

/// What a claimer brings for `Reconcile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing.
    None,
    /// A probe, and the late time before which it must not run, in milliseconds.
    Ready { not_before: u64 },
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A new grant. `fresh`: the key's life begins here, whatever rows it had before.
    Grant { attempt: u32, first_attempt_s: u32, fresh: bool, resumed: bool },
    /// The caller's probe is to look whether the effect exists.
    Probe,
    /// Another fingerprint stands under this key.
    Mismatch,
    /// Refused; this is what stands there.
    Stands(Seen),
    /// Apply it: settle, renew, release, doubt or resolve.
    Apply,
    /// The same is recorded already.
    Same,
    /// The caller's token no longer holds the claim; its outcome is evidence.
    Lost,
    /// No such grant was ever made, or nothing of it is remembered.
    NoSuchGrant,
}

impl Record {
    /// How many words a record has in the index.
    pub const WORDS: usize = 12;
    /// A last word that no record has.
    pub const NOTHING: u64 = u64::MAX;

    /// The record as words. The last one holds the standing.
    pub fn to_words(self) -> [u64; Record::WORDS] {
        let (prints, _) = self.fingerprint.as_chunks::<8>();
        let print = |at: usize| prints.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let tail = u64::from(self.standing.code()) << 32 | u64::from(self.form.0) << 40 | u64::from(self.rows) << 48;
        [
            print(0),
            print(1),
            print(2),
            print(3),
            self.token,
            self.last,
            self.at,
            self.link,
            pair(self.first_attempt_s, self.attempt),
            pair(self.body_len, self.keep_s),
            pair(self.remember_s, self.since_s),
            u64::from(self.rule.0) | tail,
        ]
    }

    /// The record of these words. Any words give some record.
    #[inline]
    pub fn from_words(words: [u64; Record::WORDS]) -> Self {
        let [a, b, c, d, token, last, at, link, attempts, body, times, tail] = words;
        let mut fingerprint = [0; 32];
        for (bytes, word) in fingerprint.as_chunks_mut::<8>().0.iter_mut().zip([a, b, c, d]) {
            *bytes = word.to_le_bytes();
        }
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        Record {
            fingerprint,
            token,
            last,
            at,
            link,
            first_attempt_s: low(attempts),
            attempt: high(attempts),
            body_len: low(body),
            keep_s: high(body),
            remember_s: low(times),
            since_s: high(times),
            rule: PackedRule(low(tail)),
            standing: Stored::from_code((tail >> 32) as u8),
            form: Form((tail >> 40) as u8),
            rows: (tail >> 48) as u16,
        }
    }
}

impl Stored {
    /// Whether somebody holds the claim, or nobody knows what became of it.
    pub fn is_open(self) -> bool {
        match self {
            Stored::InProgress | Stored::Uncertain(_) => true,
            Stored::Vacant | Stored::Done | Stored::Failed => false,
        }
    }

    fn code(self) -> u8 {
        match self {
            Stored::Vacant => 0,
            Stored::InProgress => 1,
            Stored::Done => 2,
            Stored::Failed => 3,
            Stored::Uncertain(Reason::Dropped) => 4,
            Stored::Uncertain(Reason::Panicked) => 5,
            Stored::Uncertain(Reason::UnknownError) => 6,
            Stored::Uncertain(Reason::HolderGone) => 7,
            Stored::Uncertain(Reason::Lapsed) => 8,
        }
    }

    /// A code that is none holds: uncertain.
    #[inline]
    fn from_code(code: u8) -> Self {
        match code {
            0 => Stored::Vacant,
            1 => Stored::InProgress,
            2 => Stored::Done,
            3 => Stored::Failed,
            4 => Stored::Uncertain(Reason::Dropped),
            5 => Stored::Uncertain(Reason::Panicked),
            6 => Stored::Uncertain(Reason::UnknownError),
            8 => Stored::Uncertain(Reason::Lapsed),
            7 | 9.. => Stored::Uncertain(Reason::HolderGone),
        }
    }
}

const MS: u64 = 1000;

/// A time `seconds` after `at`; never, where either has no end.
#[inline]
fn after(at: u64, seconds: u32) -> u64 {
    if seconds == u32::MAX { FOREVER } else { at.saturating_add(u64::from(seconds) * MS) }
}

impl Record {
    /// The late time at which the key is forgotten, in milliseconds.
    #[inline]
    pub fn forgotten_at(&self) -> u64 {
        match self.standing {
            Stored::Done | Stored::Failed | Stored::Vacant => after(self.at, self.remember_s),
            Stored::InProgress | Stored::Uncertain(_) => FOREVER,
        }
    }

    /// The late time at which the body is dropped, in milliseconds.
    #[inline]
    pub fn body_until(&self) -> u64 {
        after(self.at, self.keep_s)
    }

    /// Whether retention has passed: the key is vacant in every entry point, swept or not.
    #[inline]
    pub fn is_forgotten(&self, now: Now) -> bool {
        let at = self.forgotten_at();
        at != FOREVER && now.late >= at
    }

    /// The standing now.
    #[inline]
    pub fn seen(&self, now: Now, holder: Holder) -> Seen {
        if self.is_forgotten(now) {
            return Seen::Vacant;
        }
        match self.standing {
            Stored::Vacant => Seen::Vacant,
            Stored::Done => Seen::Done { kept: self.is_kept(now) },
            Stored::Failed => Seen::Failed { kept: self.is_kept(now) },
            Stored::Uncertain(reason) => Seen::Uncertain(reason),
            Stored::InProgress => match holder {
                Holder::Gone => Seen::Uncertain(Reason::HolderGone),
                Holder::Alive | Holder::Unknown if self.is_lapsed(now) => {
                    if cfg!(onceledger_canary = "expire_to_free") {
                        return Seen::Vacant;
                    }
                    Seen::Uncertain(Reason::Lapsed)
                }
                Holder::Alive | Holder::Unknown => Seen::InProgress,
            },
        }
    }

    #[inline]
    fn is_kept(&self, now: Now) -> bool {
        let until = self.body_until();
        self.link != 0 && (until == FOREVER || now.late < until)
    }

    fn is_lapsed(&self, now: Now) -> bool {
        let early = now.early.saturating_sub(u64::from(cfg!(onceledger_canary = "deadline_off_by_one")));
        self.at != FOREVER && early >= self.at
    }
}

/// The table. `record` is what is known of the key, `None` where nothing is.
pub(crate) fn decide(record: Option<&Record>, ask: &Ask, now: Now, holder: Holder) -> Decision {
    let record = record.filter(|record| !record.is_forgotten(now));
    match *ask {
        Ask::Claim { fingerprint, rule, probe } => match record {
            Some(record) => claim(record, fingerprint, rule, probe, now, holder),
            None => Decision::Grant { attempt: 1, first_attempt_s: seconds(now.early), fresh: true, resumed: false },
        },
        Ask::Settle { token, equal } => held(record, token, |record| match record.standing {
            Stored::InProgress | Stored::Uncertain(_) => Decision::Apply,
            Stored::Done | Stored::Failed if equal => Decision::Same,
            Stored::Done | Stored::Failed | Stored::Vacant => Decision::Lost,
        }),
        Ask::Renew { token } => held(record, token, |record| match record.standing {
            Stored::InProgress => Decision::Apply,
            Stored::Uncertain(_) | Stored::Done | Stored::Failed | Stored::Vacant => Decision::Lost,
        }),
        Ask::Release { token } => held(record, token, |record| match record.standing {
            Stored::InProgress | Stored::Uncertain(_) => Decision::Apply,
            // It was released under this token, or resolved as not done: a release says the same again.
            Stored::Vacant => Decision::Same,
            Stored::Done | Stored::Failed => Decision::Lost,
        }),
        Ask::Doubt { token } => held(record, token, |record| match record.standing {
            Stored::InProgress => Decision::Apply,
            Stored::Uncertain(_) => Decision::Same,
            Stored::Vacant | Stored::Done | Stored::Failed => Decision::Lost,
        }),
        Ask::Resolve { token, force, verdict: _ } => match record {
            Some(record) if record.token == token => match record.seen(now, holder) {
                Seen::Uncertain(_) => Decision::Apply,
                Seen::InProgress if force => Decision::Apply,
                seen @ (Seen::InProgress | Seen::Vacant | Seen::Done { .. } | Seen::Failed { .. }) => {
                    Decision::Stands(seen)
                }
            },
            Some(record) => Decision::Stands(record.seen(now, holder)),
            None => Decision::Stands(Seen::Vacant),
        },
    }
}

/// Judges what only the grant's own holder may do.
fn held(record: Option<&Record>, token: u64, own: impl FnOnce(&Record) -> Decision) -> Decision {
    match record {
        Some(record) if record.token == token => own(record),
        Some(record) if record.token > token => Decision::Lost,
        Some(_) | None => Decision::NoSuchGrant,
    }
}

fn claim(
    record: &Record,
    fingerprint: [u8; 32],
    rule: RecoveryRule,
    probe: Probe,
    now: Now,
    holder: Holder,
) -> Decision {
    let seen = record.seen(now, holder);
    let skips = cfg!(onceledger_canary = "skip_the_fingerprint");
    if seen != Seen::Vacant && record.fingerprint != fingerprint && !skips {
        return Decision::Mismatch;
    }
    let again = |resumed| Decision::Grant {
        attempt: record.attempt.saturating_add(1),
        first_attempt_s: record.first_attempt_s,
        fresh: false,
        resumed,
    };
    match seen {
        Seen::Vacant => again(false),
        Seen::InProgress | Seen::Done { .. } | Seen::Failed { .. } => Decision::Stands(seen),
        Seen::Uncertain(Reason::Lapsed) => Decision::Stands(seen),
        Seen::Uncertain(Reason::Dropped | Reason::Panicked | Reason::UnknownError | Reason::HolderGone) => {
            // The stored rule binds a laxer claim; a stricter claim binds itself.
            match record.rule.rule().min(rule) {
                RecoveryRule::Hold => Decision::Stands(seen),
                RecoveryRule::Resend(window_s) if in_window(record, window_s, now) => again(true),
                RecoveryRule::Resend(_) => Decision::Stands(seen),
                RecoveryRule::Reconcile => match probe {
                    Probe::None => Decision::Stands(seen),
                    // Rounded as the doubt was when it was written: no delay is none.
                    Probe::Ready { not_before } if now.late_up >= not_before => Decision::Probe,
                    Probe::Ready { .. } => Decision::Stands(seen),
                },
            }
        }
    }
}

/// Whether the downstream still deduplicates, counted from the first attempt ever made.
fn in_window(record: &Record, window_s: u32, now: Now) -> bool {
    let ends = u64::from(record.first_attempt_s).saturating_add(u64::from(window_s)).saturating_mul(MS);
    now.early < ends
}

/// Whole seconds, rounded down.
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / MS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
