//! Going through every doubt at start-up, with a probe that looks whether the effect exists.
//!
//! Each doubt is asked about through a claim of its own key, so that the engine's rules hold: one
//! prober per key, not before the settle delay, never while the holder may be running, the verdict and
//! what follows from it in one commit against the token in doubt. A key under
//! [`Recovery::Hold`] is left to a person.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::claim::{Claim, Claimed, Doubt, DoubtReason, Finding, Probe, ProbeKind, Recovery};
use crate::engine::sync::Arc;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::ledger::Ledger;

/// How [`reconcile_all`](Ledger::reconcile_all) goes about it.
#[derive(Clone, Debug)]
pub struct Reconcile {
    probe: Probe,
    at_once: usize,
    rounds: u32,
    pause: Duration,
    pause_max: Duration,
}

impl Reconcile {
    /// Asks this probe about every doubt. It is told the key with its scope and label.
    pub fn new(probe: Probe) -> Self {
        Reconcile { probe, at_once: 4, rounds: 5, pause: Duration::from_secs(1), pause_max: Duration::from_secs(60) }
    }

    /// How many probes run at once. Default: 4.
    pub fn at_once(mut self, probes: usize) -> Self {
        self.at_once = probes;
        self
    }

    /// How often a doubt is asked about that nobody could tell about, or that was not due yet.
    /// Default: 5 times.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// How long to pause after a round that left doubts: this long after the first, twice as long
    /// after each further one, never longer than `longest`. Default: 1 s and 60 s.
    pub fn back_off(mut self, first: Duration, longest: Duration) -> Self {
        self.pause = first;
        self.pause_max = longest;
        self
    }
}

/// What became of the doubts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Reconciled {
    /// The effect exists: recorded as done.
    pub applied: Vec<Key>,
    /// The effect does not exist: the key is free again.
    pub not_applied: Vec<Key>,
    /// Somebody else decided or ran the action meanwhile.
    pub elsewhere: Vec<Key>,
    /// The key stays uncertain until a person resolves it ([`Recovery::Hold`]).
    pub held: Vec<Doubt>,
    /// Still uncertain: the probe could not tell, it was not due, or the holder may be running.
    pub left: Vec<Doubt>,
}

enum Found {
    Applied(Key),
    NotApplied(Key),
    Elsewhere(Key),
    Held(Doubt),
    Left(Doubt),
}

impl Ledger {
    /// Asks a probe about every uncertain claim, and records what it finds. Meant for start-up.
    ///
    /// Blocks for as long as the probes and the pauses between rounds take; the probes run on threads
    /// that end with the call.
    ///
    /// # Errors
    /// `BadInput` for a limit of zero. `Storage`, `Unknown`, `Closed` as everywhere: what was found
    /// before stands.
    pub fn reconcile_all(&self, how: &Reconcile) -> Result<Reconciled> {
        if how.at_once == 0 || how.rounds == 0 {
            return Err(
                Error::bad_input("no probes, or no rounds: nothing would be asked").next("allow at least one of each")
            );
        }
        let mut told = Reconciled::default();
        let mut open = self.uncertain()?;
        let mut pause = how.pause;
        for round in 1..=how.rounds {
            for found in self.round(how, std::mem::take(&mut open))? {
                match found {
                    Found::Applied(key) => told.applied.push(key),
                    Found::NotApplied(key) => told.not_applied.push(key),
                    Found::Elsewhere(key) => told.elsewhere.push(key),
                    Found::Held(doubt) => told.held.push(doubt),
                    Found::Left(doubt) => open.push(doubt),
                }
            }
            if open.is_empty() || round == how.rounds {
                break;
            }
            thread::sleep(pause.min(how.pause_max));
            pause = pause.saturating_mul(2);
        }
        told.left = open;
        Ok(told)
    }

    /// Asks once about each, in order, so many at a time.
    fn round(&self, how: &Reconcile, doubts: Vec<Doubt>) -> Result<Vec<Found>> {
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<(usize, Found)>> = Mutex::new(Vec::with_capacity(doubts.len()));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let work = || {
            while failed.lock().is_none() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(doubt) = doubts.get(at) else { return };
                match self.ask(how, doubt) {
                    Ok(this) => found.lock().push((at, this)),
                    Err(error) => _ = failed.lock().get_or_insert(error),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..how.at_once.min(doubts.len()) {
                // Where there is no thread to be had, this one does the work.
                _ = thread::Builder::new().name("onceledger-reconcile".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let mut found = found.into_inner();
        found.sort_unstable_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// Claims the key of a doubt with the probe.
    fn ask(&self, how: &Reconcile, doubt: &Doubt) -> Result<Found> {
        // The holder may still be running: no probe can speak for it.
        if doubt.reason == DoubtReason::Lapsed {
            return Ok(Found::Left(doubt.clone()));
        }
        let Some(detail) = self.show(&doubt.key)? else { return Ok(Found::Elsewhere(doubt.key.clone())) };
        if detail.token != doubt.token {
            return Ok(Found::Elsewhere(detail.key));
        }
        let exists = Arc::new(Mutex::new(None));
        let mut claim = Claim::unguarded(detail.key.clone()).label(&detail.label);
        claim.fingerprint = detail.fingerprint;
        claim.args = detail.args;
        claim.recovery = Recovery::Reconcile(watched(&how.probe, &exists));
        Ok(match self.claim(&claim)? {
            Claimed::Granted(grant) => {
                // The verdict freed the key and gave it to the prober, who has nothing to run. Where the probe
                // was not asked, somebody else had freed it.
                _ = grant.release()?;
                match *exists.lock() {
                    Some(false) => Found::NotApplied(detail.key),
                    _ => Found::Elsewhere(detail.key),
                }
            }
            Claimed::AlreadyDone(_) if *exists.lock() == Some(true) => Found::Applied(detail.key),
            Claimed::Uncertain(uncertain) if uncertain.stored_rule_decided => Found::Held(uncertain.doubt),
            Claimed::Uncertain(uncertain) => Found::Left(uncertain.doubt),
            Claimed::AlreadyDone(_)
            | Claimed::Failed(_)
            | Claimed::InProgress(_)
            | Claimed::Mismatch(_)
            | Claimed::NotApproved(_) => Found::Elsewhere(detail.key),
        })
    }
}

/// The probe, noting whether the effect exists, where it can tell.
fn watched(probe: &Probe, exists: &Arc<Mutex<Option<bool>>>) -> Probe {
    let exists = Arc::clone(exists);
    let note = move |finding: Finding| {
        *exists.lock() = match finding {
            Finding::Applied(_) => Some(true),
            Finding::NotApplied => Some(false),
            Finding::Unknown => None,
        };
        finding
    };
    match probe.0.clone() {
        ProbeKind::Blocking(probe) => Probe::new(move |doubt| note(probe(doubt))),
        ProbeKind::Future(probe) => Probe::future(move |doubt| {
            let (future, note) = (probe(doubt), note.clone());
            async move { note(future.await) }
        }),
    }
}
