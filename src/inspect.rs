//! Looking at a ledger: one key whole, its history, keys by standing, counts, and a full check.

mod order;

use std::collections::{BTreeMap, BTreeSet};

use crate::claim::{Doubt, FencingToken, Standing, View};
use crate::engine::codec::{self, Meta};
use crate::engine::core::Core;
use crate::engine::event::{AdoptedEvent, ApprovalLine, ApprovalWhat, Body, Entry, Event, Told, ToldWhat};
use crate::engine::history::{self, Chain};
use crate::engine::index::KeyDigest;
use crate::engine::request::Work;
use crate::engine::side;
use crate::engine::state::{Holder, Record, Seen, Stored as StoredStanding};
use crate::engine::store::Store;
use crate::error::{Error, Result};
use crate::key::{ArgsDigest, Fingerprint, Key, Scope};
use crate::ledger::{Ledger, reason, seen_now, view};
use crate::outcome::Stored;

/// Everything that is known of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Detail {
    /// The key, with its scope and label.
    pub key: Key,
    /// What stands.
    pub view: View,
    /// The last grant.
    pub token: FencingToken,
    /// How many times the key was granted.
    pub attempt: u32,
    /// Since when this stands, in milliseconds since 1970.
    pub since_ms: u64,
    /// The scope, empty where the key was made without one.
    pub scope: String,
    /// A few words for people.
    pub label: String,
    /// The fingerprint of the arguments.
    pub fingerprint: Fingerprint,
    /// The digest of the complete arguments, where there were any.
    pub args: Option<ArgsDigest>,
    /// The stored rule for a holder that is gone: `hold`, `reconcile` or `resend`.
    pub recovery: &'static str,
    /// The exit code of the program that was the effect.
    pub exit_code: Option<i32>,
}

/// One line of a key's history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Past {
    /// The grant it is about.
    pub token: FencingToken,
    /// What happened.
    pub what: PastWhat,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who decided, where somebody did.
    pub by: String,
    /// Why, where somebody said.
    pub why: String,
    /// The outcome that came with it; `None` where there was none, or its body is not kept.
    pub outcome: Option<Stored>,
    /// The exit code that came with it.
    pub exit_code: Option<i32>,
}

/// What a line of the history says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PastWhat {
    /// The key was granted.
    Granted,
    /// The lease was moved.
    Renewed,
    /// The holder recorded success.
    Done,
    /// The holder recorded a final failure.
    Failed,
    /// The holder gave the key back.
    Released,
    /// The grant ended without a settle, or its holder was gone.
    Uncertain,
    /// Somebody decided that it had happened.
    ResolvedDone,
    /// Somebody decided that it had failed for good.
    ResolvedFailed,
    /// Somebody decided that it had not happened.
    ResolvedNotDone,
    /// A holder that had lost its claim reported success.
    LateDone,
    /// A holder that had lost its claim reported a final failure.
    LateFailed,
    /// A holder that had lost its claim gave it back.
    LateReleased,
    /// Somebody asked for an approval.
    ApprovalRequested,
    /// Somebody said yes.
    Approved,
    /// Somebody said no.
    Denied,
    /// The request was taken back.
    ApprovalWithdrawn,
    /// A grant spent the approval.
    ApprovalSpent,
    /// A released or not-done grant gave the approval back.
    ApprovalReturned,
    /// What the approver was shown was dropped.
    ApprovalRedacted,
}

impl PastWhat {
    /// A short, stable name.
    pub fn name(self) -> &'static str {
        match self {
            PastWhat::Granted => "granted",
            PastWhat::Renewed => "renewed",
            PastWhat::Done => "done",
            PastWhat::Failed => "failed",
            PastWhat::Released => "released",
            PastWhat::Uncertain => "uncertain",
            PastWhat::ResolvedDone => "resolved_done",
            PastWhat::ResolvedFailed => "resolved_failed",
            PastWhat::ResolvedNotDone => "resolved_not_done",
            PastWhat::LateDone => "late_done",
            PastWhat::LateFailed => "late_failed",
            PastWhat::LateReleased => "late_released",
            PastWhat::ApprovalRequested => "approval_requested",
            PastWhat::Approved => "approved",
            PastWhat::Denied => "denied",
            PastWhat::ApprovalWithdrawn => "approval_withdrawn",
            PastWhat::ApprovalSpent => "approval_spent",
            PastWhat::ApprovalReturned => "approval_returned",
            PastWhat::ApprovalRedacted => "approval_redacted",
        }
    }
}

/// A page of keys.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Listed {
    /// The keys, in ascending order of their digest.
    pub keys: Vec<Detail>,
    /// The last key of a full page: the next page begins after it. `None` where this is the end.
    pub next: Option<Key>,
}

/// Who took a file over that its anchor did not vouch for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adoption {
    /// The epoch that began with it.
    pub epoch: u64,
    /// When, as Unix time in milliseconds by the wall clock.
    pub at_ms: u64,
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
}

impl Adoption {
    fn of(entry: &Entry) -> Option<Self> {
        let Event::Adopted(AdoptedEvent { epoch, by, why }) = &entry.event else { return None };
        Some(Adoption { epoch: *epoch, at_ms: entry.head.wall_ms, by: by.clone(), why: why.clone() })
    }
}

/// Counts and times of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that were released or resolved as not done, and are still remembered.
    pub vacant: u64,
    /// Claims in progress.
    pub in_progress: u64,
    /// Actions that were done.
    pub done: u64,
    /// Actions that failed for good.
    pub failed: u64,
    /// Claims of which nobody knows.
    pub uncertain: u64,
    /// Rows of the log.
    pub rows: u64,
    /// Rows of the log that nothing needs; cleaned once they are a quarter.
    pub garbage_rows: u64,
    /// The next number that the log will give out.
    pub next_sequence: u64,
    /// How often the file was adopted, plus one.
    pub epoch: u64,
    /// Who adopted it, oldest first.
    pub adoptions: Vec<Adoption>,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// How far the time that ends leases is ahead of the wall clock, in milliseconds; negative: behind.
    pub early_ahead_ms: i64,
    /// How far the time that ends retention is ahead of the wall clock, in milliseconds; negative: behind.
    pub late_ahead_ms: i64,
}

impl Stats {
    /// The count of one standing.
    pub fn count(&self, standing: Standing) -> u64 {
        match standing {
            Standing::Vacant => self.vacant,
            Standing::InProgress => self.in_progress,
            Standing::Done => self.done,
            Standing::Failed => self.failed,
            Standing::Uncertain => self.uncertain,
        }
    }
}

/// What a full check read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Rows of the log.
    pub rows: u64,
    /// Outcome bodies.
    pub bodies: u64,
    /// Bytes of outcome bodies.
    pub body_bytes: u64,
}

impl Ledger {
    /// Everything that is known of a key; `None` where it was never granted or is forgotten. A holder
    /// in another process is looked at afresh.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn show(&self, key: &Key) -> Result<Option<Detail>> {
        self.attend_all()?;
        detail(self.core(), key.digest())
    }

    /// What happened to a key, oldest first; empty where nothing is known.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn history(&self, key: &Key) -> Result<Vec<Past>> {
        self.attend_all()?;
        let core = self.core();
        let told = chain(core, key.digest())?.map(|(_, chain)| chain.into_told()).unwrap_or_default();
        let own = told.into_iter().map(|told| past(core, told)).collect::<Result<Vec<_>>>()?;
        let mut strands = vec![order::Strand::of_key(own)];
        for approval in side::approvals_of(core, key.digest()) {
            let lines = approval.lines.iter().map(approval_past).collect();
            strands.push(order::Strand::of_approval(approval.id, lines));
        }
        Ok(order::woven(strands))
    }

    /// Up to `limit` keys of a standing, in ascending order of key, from the first after `after`.
    /// Holders in other processes are looked at afresh.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn list(&self, standing: Standing, after: Option<&Key>, limit: usize) -> Result<Listed> {
        self.attend_all()?;
        let core = self.core();
        // Makes the coarse time, which the walk uses, the exact one.
        core.times.now();
        let mut found: Vec<KeyDigest> = Vec::new();
        core.index.walk(after.map(Key::digest), |key, record| {
            let (seen, _) = core.seen(&record);
            if !record.is_forgotten(core.times.coarse()) && standing_of(seen) == standing {
                found.push(key);
            }
            found.len() <= limit
        });
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(|key| Key::from_digest(*key)) } else { None };
        let mut keys = Vec::with_capacity(found.len());
        for key in &found {
            keys.extend(detail(core, key)?);
        }
        Ok(Listed { keys, next })
    }

    /// Every claim of which nobody knows, in the order in which they were granted.
    ///
    /// # Errors
    /// `Storage`, `Closed`.
    pub fn uncertain(&self) -> Result<Vec<Doubt>> {
        self.attend_all()?;
        let core = self.core();
        let mut open: Vec<(u64, KeyDigest)> = core.line.pen().open.iter().map(|(token, key)| (*token, *key)).collect();
        open.sort_unstable();
        let doubt = |(_, key): (u64, KeyDigest)| {
            let record = core.index.get(&key)?;
            match core.seen(&record).0 {
                Seen::Uncertain(why) => Some(crate::ledger::doubt(&Key::from_digest(key), &record, why)),
                Seen::Vacant | Seen::InProgress | Seen::Done { .. } | Seen::Failed { .. } => None,
            }
        };
        Ok(open.into_iter().filter_map(doubt).collect())
    }

    /// Counts and times. Looks at every live key.
    ///
    /// # Errors
    /// `Storage`, `Closed`.
    pub fn stats(&self) -> Result<Stats> {
        self.attend_all()?;
        let core = self.core();
        let mut stats = Stats::default();
        core.times.now();
        core.index.for_each(|_, record| {
            let (seen, _) = core.seen(record);
            match seen {
                Seen::Vacant if record.is_forgotten(core.times.coarse()) => {}
                Seen::Vacant => stats.vacant += 1,
                Seen::InProgress => stats.in_progress += 1,
                Seen::Done { .. } => stats.done += 1,
                Seen::Failed { .. } => stats.failed += 1,
                Seen::Uncertain(_) => stats.uncertain += 1,
            }
        });
        let pen = core.line.pen();
        let now = core.times.now();
        // Negative where the wall clock is before the creation.
        let lived = i128::from(now.wall) - i128::from(pen.meta.created_ms);
        let ahead = |time: u64| (i128::from(time) - lived).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        stats.rows = pen.meta.count;
        stats.garbage_rows = pen.garbage;
        stats.next_sequence = pen.meta.next_sequence;
        stats.epoch = pen.meta.epoch;
        stats.adoptions = pen.adoptions.values().filter_map(Adoption::of).collect();
        stats.early_ahead_ms = ahead(now.early);
        stats.late_ahead_ms = ahead(now.late);
        drop(pen);
        let node = core.disk.node(&core.paths.file);
        let node = node.map_err(|error| Error::io("looking at", &core.paths.file, error))?;
        if let Some(crate::engine::files::Node::File(bytes)) = node {
            stats.file_bytes = bytes;
        }
        Ok(stats)
    }

    /// Reads the whole log and every stored outcome, and compares checksums, count and digest. Writes
    /// wait while it runs.
    ///
    /// # Errors
    /// `Damaged` for the first row that is not what was written; `Storage`, `Closed`.
    pub fn verify(&self) -> Result<Verified> {
        let core = self.core();
        core.check_call()?;
        let pen = core.line.pen();
        let verified = core.store().and_then(|store| verify(&store, &pen.meta, &kept_bodies(core)));
        drop(pen);
        core.heard(verified)
    }

    /// Looks afresh at every foreign session that may hold a claim.
    fn attend_all(&self) -> Result<()> {
        let core = self.core();
        core.check_call()?;
        if core.check_writable().is_err() {
            return Ok(());
        }
        let foreign: Vec<u64> = {
            let pen = core.line.pen();
            let open = pen.sessions.iter().filter(|(number, row)| **number != pen.own && row.open > 0);
            open.map(|(number, _)| *number).collect()
        };
        for session in foreign.into_iter().filter(|session| core.may_live(*session)) {
            core.call(Work::Attend { session })?;
        }
        Ok(())
    }
}

/// The rows of bodies that must be there now: of settled keys, cells and approvals.
fn kept_bodies(core: &Core) -> Vec<u64> {
    let now = core.times.now();
    let mut rows = side::bodies(core);
    core.index.for_each(|_, record| {
        if matches!(record.seen(now, Holder::Alive), Seen::Done { kept: true } | Seen::Failed { kept: true }) {
            rows.push(record.link);
        }
    });
    rows
}

/// `bodies`: rows of bodies that must be there.
fn verify(store: &Store, meta: &Meta, bodies: &[u64]) -> Result<Verified> {
    let mut verified = Verified::default();
    let mut digest = 0_u128;
    // By row: an event that was moved states a body again, and its history others.
    let mut stated = BTreeMap::new();
    store.scan(0..u64::MAX, |sequence, row| {
        verified.rows += 1;
        digest = digest.wrapping_add(codec::row_digest(sequence, row));
        let entry = codec::open_event(sequence, row)?;
        stated.extend(entry.event.bodies().filter_map(|body| body.row(sequence).map(|row| (row, *body))));
        Ok(true)
    })?;
    if (verified.rows, digest) != (meta.count, meta.digest) {
        return Err(Error::damaged(format!("the log has {} rows where {} were written", verified.rows, meta.count)));
    }
    let kept: BTreeSet<u64> = bodies.iter().copied().collect();
    for (row, body) in stated {
        // A body whose retention has passed may be gone; one that is there must be the one stated.
        let Some(outcome) = store.body(row, body.kind, body.error)? else {
            if kept.contains(&row) {
                return Err(Error::damaged(format!("body {row} should be in the file and is not")));
            }
            continue;
        };
        let bytes = outcome.body();
        if (bytes.len() as u64, codec::body_checksum(bytes)) != (body.len, body.crc) {
            return Err(Error::damaged(format!("outcome {row} is not the one that its event states")));
        }
        verified.bodies += 1;
        verified.body_bytes += bytes.len() as u64;
    }
    Ok(verified)
}

fn standing_of(seen: Seen) -> Standing {
    match seen {
        Seen::Vacant => Standing::Vacant,
        Seen::InProgress => Standing::InProgress,
        Seen::Done { .. } => Standing::Done,
        Seen::Failed { .. } => Standing::Failed,
        Seen::Uncertain(_) => Standing::Uncertain,
    }
}

fn chain(core: &Core, key: &KeyDigest) -> Result<Option<(Record, Chain)>> {
    let store = core.store()?;
    let live = |key: &KeyDigest| core.index.get(key).filter(|record| !record.is_forgotten(core.times.now()));
    let read = match history::read_chain(&store, key, live) {
        // Between a commit that moved the key and its publication the file is ahead of the index. With
        // the pen in hand neither moves: what is missing then is missing.
        Err(error) if error.is_damaged() => {
            let _pen = core.line.pen();
            history::read_chain(&store, key, live)
        }
        read => read,
    };
    core.heard(read)
}

fn detail(core: &Core, key: &KeyDigest) -> Result<Option<Detail>> {
    let Some((record, chain)) = chain(core, key)? else { return Ok(None) };
    let Some(grant) = chain.grant() else {
        return Err(Error::damaged(format!("token {} has no grant in the log", record.token)));
    };
    let name = |scope: &str| Scope::new(scope).map(|scope| Key::from_digest(*key).named(&scope, &grant.label));
    let key = name(&grant.scope).unwrap_or_else(|_| Key::from_digest(*key));
    let (seen, now) =
        if record.standing.is_open() { core.seen(&record) } else { (seen_now(core, &record), core.times.now()) };
    let settled = matches!(record.standing, StoredStanding::Done | StoredStanding::Failed);
    Ok(Some(Detail {
        view: view(core, &key, Some(&record), seen, now)?,
        key,
        token: FencingToken(record.token),
        attempt: record.attempt,
        since_ms: chain.since_ms(),
        scope: grant.scope.clone(),
        label: grant.label.clone(),
        fingerprint: Fingerprint::from_digest(record.fingerprint),
        args: (grant.args != [0; 32]).then(|| ArgsDigest::from_digest(grant.args)),
        recovery: match grant.terms.recovery {
            crate::engine::event::RecoveryRule::Hold => "hold",
            crate::engine::event::RecoveryRule::Reconcile => "reconcile",
            crate::engine::event::RecoveryRule::Resend(_) => "resend",
        },
        exit_code: chain.settled_body().filter(|_| settled).and_then(|body| body.exit_code),
    }))
}

fn past(core: &Core, told: Told) -> Result<Past> {
    let outcome = told.body.filter(|body| body.len > 0 || body.row(0).is_some());
    Ok(Past {
        token: FencingToken(told.token),
        what: what(told.what),
        at_ms: told.wall_ms,
        by: told.by,
        why: if told.why.is_empty() { reason_of(told.what).to_owned() } else { told.why },
        outcome: outcome.map(|body| stored(core, &body)).transpose()?,
        exit_code: told.body.and_then(|body| body.exit_code),
    })
}

fn approval_past(line: &ApprovalLine) -> Past {
    Past {
        token: FencingToken(line.token),
        what: match line.what {
            ApprovalWhat::Requested => PastWhat::ApprovalRequested,
            ApprovalWhat::Approved => PastWhat::Approved,
            ApprovalWhat::Denied => PastWhat::Denied,
            ApprovalWhat::Withdrawn => PastWhat::ApprovalWithdrawn,
            ApprovalWhat::Spent => PastWhat::ApprovalSpent,
            ApprovalWhat::Returned => PastWhat::ApprovalReturned,
            ApprovalWhat::Redacted => PastWhat::ApprovalRedacted,
        },
        at_ms: line.wall_ms,
        by: line.by.clone(),
        why: line.why.clone(),
        outcome: None,
        exit_code: None,
    }
}

fn stored(core: &Core, body: &Body) -> Result<Stored> {
    let not_kept = Stored::NotKept { kind: body.kind, error: body.error, bytes: body.len };
    let Some(row) = body.row(0) else { return Ok(not_kept) };
    Ok(core.body(row, body.kind, body.error)?.map_or(not_kept, Stored::Kept))
}

/// Why a claim is uncertain, where nobody said more.
fn reason_of(told: ToldWhat) -> &'static str {
    match told {
        ToldWhat::Uncertain(why) => reason(why).name(),
        ToldWhat::Granted
        | ToldWhat::Renewed
        | ToldWhat::Done
        | ToldWhat::Failed
        | ToldWhat::Released
        | ToldWhat::ResolvedDone
        | ToldWhat::ResolvedFailed
        | ToldWhat::ResolvedNotDone
        | ToldWhat::LateDone
        | ToldWhat::LateFailed
        | ToldWhat::LateReleased => "",
    }
}

fn what(told: ToldWhat) -> PastWhat {
    match told {
        ToldWhat::Granted => PastWhat::Granted,
        ToldWhat::Renewed => PastWhat::Renewed,
        ToldWhat::Done => PastWhat::Done,
        ToldWhat::Failed => PastWhat::Failed,
        ToldWhat::Released => PastWhat::Released,
        ToldWhat::Uncertain(_) => PastWhat::Uncertain,
        ToldWhat::ResolvedDone => PastWhat::ResolvedDone,
        ToldWhat::ResolvedFailed => PastWhat::ResolvedFailed,
        ToldWhat::ResolvedNotDone => PastWhat::ResolvedNotDone,
        ToldWhat::LateDone => PastWhat::LateDone,
        ToldWhat::LateFailed => PastWhat::LateFailed,
        ToldWhat::LateReleased => PastWhat::LateReleased,
    }
}
