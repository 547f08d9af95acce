//! Cells and approvals: what the log holds beside claims. Both are small, so each change writes the
//! whole of it, and all of them are in memory. Their readers never meet the writer (P7, P8).

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::clock::Now;
use crate::engine::core::Core;
use crate::engine::event::{
    ApprovalEvent, ApprovalLine, ApprovalWhat, Body, CellEvent, DecisionRule, Event, FOREVER, Place,
};
use crate::engine::index::KeyDigest;
use crate::engine::maps::{DigestMap, TokenMap};
use crate::engine::replay;
use crate::engine::request::{ClaimWork, Prepared, Reply};
use crate::engine::state::Record;
use crate::engine::turn::Turn;
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// A cell as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellRecord {
    pub version: u64,
    /// The row of the log that says so.
    pub row: u64,
    pub value: Body,
    /// The value itself, where it is small enough to stay in memory.
    pub small: Option<Outcome>,
}

/// Values of at most this many bytes stay in memory.
const SMALL_BYTES_MAX: usize = 4096;

/// An approval and the row of the log that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalRecord {
    pub row: u64,
    pub event: ApprovalEvent,
}

/// An approval's state as a caller sees it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalSeen {
    Pending,
    Approved,
    Denied,
    Withdrawn,
    Expired,
    Spent,
}

/// All cells and approvals.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub cells: BTreeMap<String, CellRecord>,
    pub approvals: BTreeMap<u64, ApprovalRecord>,
    by_key: DigestMap<Vec<u64>>,
    by_token: TokenMap<u64>,
}

/// What a batch changes of them; published after the commit.
#[derive(Debug, Default)]
pub(crate) struct SideBatch {
    cells: BTreeMap<String, Option<CellRecord>>,
    approvals: BTreeMap<u64, Option<ApprovalRecord>>,
}

impl ApprovalRecord {
    /// The state now. A deny while it is spent takes effect only if it comes back.
    pub fn seen(&self, now: Now) -> ApprovalSeen {
        let expired = now.early >= self.event.deadline_ms;
        match self.event.decision {
            _ if self.event.spent_by != 0 => ApprovalSeen::Spent,
            DecisionRule::Denied => ApprovalSeen::Denied,
            DecisionRule::Withdrawn => ApprovalSeen::Withdrawn,
            DecisionRule::Pending | DecisionRule::Approved if expired => ApprovalSeen::Expired,
            DecisionRule::Pending => ApprovalSeen::Pending,
            DecisionRule::Approved => ApprovalSeen::Approved,
        }
    }
}

/// Whether nobody can ask for an approval any more, swept or not (P10): its retention and its deadline
/// have passed, and the key whose grant spent it is not remembered. `key` is what is known of that key.
pub(crate) fn is_over(event: &ApprovalEvent, key: Option<&Record>, now: Now) -> bool {
    if event.remember_s == u32::MAX || now.late < due_ms(event) || now.early < event.deadline_ms {
        return false;
    }
    let spender = |key: &&Record| event.spent_by != 0 && key.token == event.spent_by && !key.is_forgotten(now);
    key.filter(spender).is_none()
}

/// The late time at which the retention of an approval ends, in milliseconds.
fn due_ms(event: &ApprovalEvent) -> u64 {
    event.changed_ms.saturating_add(u64::from(event.remember_s) * 1000)
}

/// Whether a reader still sees an approval.
pub(crate) fn is_remembered(core: &Core, event: &ApprovalEvent, now: Now) -> bool {
    !is_over(event, core.index.get(&event.key).as_ref(), now)
}

/// The approvals of a key, oldest first, as readers see them.
pub(crate) fn approvals_of(core: &Core, key: &KeyDigest) -> Vec<ApprovalEvent> {
    let now = core.times.now();
    let side = core.side.read();
    let events = side.of_key(key).map(|record| &record.event);
    events.filter(|event| is_remembered(core, event, now)).cloned().collect()
}

/// The key that an approval is for.
pub(crate) fn key_of_approval(core: &Core, id: u64) -> Result<Option<KeyDigest>> {
    core.check_call()?;
    let now = core.times.now();
    let side = core.side.read();
    let event = side.approvals.get(&id).map(|record| &record.event);
    Ok(event.filter(|event| is_remembered(core, event, now)).map(|event| event.key))
}

/// The rows of all bodies that cells and approvals need.
pub(crate) fn bodies(core: &Core) -> Vec<u64> {
    let now = core.times.now();
    let side = core.side.read();
    let values = side.cells.values().filter_map(|cell| cell.value.row(cell.row));
    let remembered = side.approvals.values().filter(|record| is_remembered(core, &record.event, now));
    values.chain(remembered.filter_map(|record| record.event.shown.row(record.row))).collect()
}

impl Side {
    /// Takes in a row while the log is scanned.
    pub fn replay(&mut self, sequence: u64, event: &Event) {
        if let Event::Cell(cell) = event {
            self.cells.remove(&cell.name);
            if let Some(value) = cell.value {
                let value = replay::placed(value, sequence);
                let record = CellRecord { version: cell.version, row: sequence, value, small: None };
                self.cells.insert(cell.name.clone(), record);
            }
        }
        if let Event::Approval(approval) = event {
            let mut event = (**approval).clone();
            event.shown = replay::placed(event.shown, sequence);
            self.put_approval(ApprovalRecord { row: sequence, event });
        }
    }

    /// How many rows of the log are needed for what is here.
    pub fn rows(&self) -> u64 {
        (self.cells.len() + self.approvals.len()) as u64
    }

    fn put_approval(&mut self, record: ApprovalRecord) {
        let (id, key, spent_by) = (record.event.id, record.event.key, record.event.spent_by);
        let old = self.approvals.insert(id, record);
        if let Some(old) = &old {
            self.by_token.remove(&old.event.spent_by);
        } else {
            // In order of id: a row that was moved stands behind those of younger approvals.
            let ids = self.by_key.entry(key).or_default();
            let at = ids.partition_point(|other| *other < id);
            ids.insert(at, id);
        }
        if spent_by != 0 {
            self.by_token.insert(spent_by, id);
        }
    }

    fn remove_approval(&mut self, id: u64) {
        let Some(old) = self.approvals.remove(&id) else { return };
        self.by_token.remove(&old.event.spent_by);
        if let Some(ids) = self.by_key.get_mut(&old.event.key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_key.remove(&old.event.key);
            }
        }
    }

    /// The approvals of a key, oldest first.
    pub fn of_key(&self, key: &KeyDigest) -> impl Iterator<Item = &ApprovalRecord> {
        let ids = self.by_key.get(key).map(Vec::as_slice).unwrap_or_default();
        ids.iter().filter_map(|id| self.approvals.get(id))
    }

    fn publish(&mut self, batch: SideBatch) {
        for (name, record) in batch.cells {
            match record {
                Some(record) => self.cells.insert(name, record),
                None => self.cells.remove(&name),
            };
        }
        for (id, record) in batch.approvals {
            match record {
                Some(record) => self.put_approval(record),
                None => self.remove_approval(id),
            }
        }
    }
}

/// Makes what a batch changed visible.
pub(crate) fn publish(side: &parking_lot::RwLock<Side>, batch: &mut SideBatch) {
    if !(batch.cells.is_empty() && batch.approvals.is_empty()) {
        side.write().publish(std::mem::take(batch));
    }
}

/// What a claim needs before it is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalNeed {
    /// The newest approval of its key and arguments.
    Newest,
    /// This one.
    This(u64),
}

pub(crate) struct RequestWork {
    pub key: KeyDigest,
    pub args: [u8; 32],
    pub valid_ms: u64,
    pub remember_s: u32,
    pub shown: Prepared,
    pub again: bool,
    pub by: String,
    pub scope: String,
    pub label: String,
}

/// What a decision does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decide {
    Approve,
    Deny,
    Withdraw,
    Redact,
}

/// What became of a request or a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Applied,
    Same,
    Conflict,
}

/// How many lines about grants an approval carries. The key's own history has all of them.
const GRANT_LINES_MAX: usize = 32;

/// Leaves out the oldest lines about grants: every change writes the whole approval, and a loop that
/// claims and releases must not make it grow. Decisions are all kept.
fn condense(lines: &mut Vec<ApprovalLine>) {
    let of_grant = |line: &ApprovalLine| matches!(line.what, ApprovalWhat::Spent | ApprovalWhat::Returned);
    let over = lines.iter().filter(|line| of_grant(line)).count().saturating_sub(GRANT_LINES_MAX);
    let mut left = over;
    lines.retain(|line| {
        let out = left > 0 && of_grant(line);
        left -= usize::from(out);
        !out
    });
}

impl Turn<'_> {
    /// A cell as the batch so far leaves it.
    pub fn cell(&self, name: &str) -> Option<CellRecord> {
        match self.pen.side.cells.get(name) {
            Some(changed) => changed.clone(),
            None => self.core.side.read().cells.get(name).cloned(),
        }
    }

    /// Writes or deletes a cell. The caller has compared its version.
    pub fn change_cell(&mut self, name: &str, value: Option<&Prepared>) -> Result<u64> {
        let old = self.cell(name);
        let version = self.pen.meta.next_sequence;
        if let Some(prepared) = value {
            self.store_body(version, prepared)?;
        }
        let body = value.map(|prepared| prepared.body);
        self.write_row(0, 0, Event::Cell(CellEvent { name: name.to_owned(), version, value: body }))?;
        self.pen.garbage += u64::from(value.is_none());
        if let Some(old) = old {
            self.pen.garbage += 1;
            self.drop_value(&old);
        }
        let record = value.map(|prepared| CellRecord {
            version,
            row: version,
            value: replay::placed(prepared.body, version),
            small: prepared.outcome.clone().filter(|value| value.body().len() <= SMALL_BYTES_MAX),
        });
        self.pen.side.cells.insert(name.to_owned(), record);
        Ok(version)
    }

    fn drop_value(&mut self, cell: &CellRecord) {
        if let Some(row) = cell.value.row(cell.row) {
            self.drop_body(row);
        }
    }

    /// Writes a cell again where the row at `sequence` is its newest. False where it is garbage.
    pub fn keep_cell(&mut self, sequence: u64, event: &CellEvent) -> Result<bool> {
        let Some(record) = self.cell(&event.name).filter(|record| record.row == sequence) else { return Ok(false) };
        let moved = CellEvent { name: event.name.clone(), version: record.version, value: Some(record.value) };
        let (row, _) = self.write_row(0, 0, Event::Cell(moved))?;
        self.pen.side.cells.insert(event.name.clone(), Some(CellRecord { row, ..record }));
        Ok(true)
    }

    /// An approval as the batch so far leaves it; `None` where nobody can ask for it any more.
    fn approval(&self, id: u64) -> Option<ApprovalRecord> {
        self.held_approval(id).filter(|record| !self.is_over(&record.event))
    }

    /// An approval as the batch so far leaves it, whether its retention has passed or not.
    fn held_approval(&self, id: u64) -> Option<ApprovalRecord> {
        match self.pen.side.approvals.get(&id) {
            Some(changed) => changed.clone(),
            None => self.core.side.read().approvals.get(&id).cloned(),
        }
    }

    /// The newest approval of a key for these arguments.
    fn newest_approval(&self, key: &KeyDigest, args: &[u8; 32]) -> Option<ApprovalRecord> {
        let fits = |record: &&ApprovalRecord| record.event.key == *key && record.event.args == *args;
        let side = self.core.side.read();
        let mut ids: BTreeSet<u64> = side.of_key(key).filter(fits).map(|record| record.event.id).collect();
        drop(side);
        ids.extend(self.pen.side.approvals.values().flatten().filter(fits).map(|record| record.event.id));
        ids.into_iter().rev().find_map(|id| self.approval(id))
    }

    /// The approval that a token spent.
    fn spent_by(&self, token: u64) -> Option<ApprovalRecord> {
        let batch = self.pen.side.approvals.values().flatten().find(|record| record.event.spent_by == token);
        if let Some(record) = batch {
            return Some(record.clone());
        }
        let id = self.core.side.read().by_token.get(&token).copied()?;
        self.held_approval(id).filter(|record| record.event.spent_by == token)
    }

    /// What a claim that stands free is to spend, or what stands in its way. `resumes` is the grant
    /// that a resend goes on for: under the approval which that one spent, where it spent one, and so
    /// with no other arguments than the approver was shown.
    pub fn to_spend(
        &self,
        work: &ClaimWork,
        resumes: Option<u64>,
    ) -> std::result::Result<Option<Box<ApprovalRecord>>, Option<Box<ApprovalRecord>>> {
        match resumes.and_then(|token| self.spent_by(token)).map(Box::new) {
            Some(spent) if spent.event.args == work.args => Ok(None),
            Some(spent) => Err(Some(spent)),
            None => work.approval.map(|need| self.spendable(need, &work.key, &work.args)).transpose(),
        }
    }

    /// The approval that a claim may spend, or what stands in its way.
    fn spendable(
        &self,
        need: ApprovalNeed,
        key: &KeyDigest,
        args: &[u8; 32],
    ) -> std::result::Result<Box<ApprovalRecord>, Option<Box<ApprovalRecord>>> {
        let found = match need {
            ApprovalNeed::Newest => self.newest_approval(key, args),
            ApprovalNeed::This(id) => self.approval(id),
        };
        let Some(record) = found.map(Box::new) else { return Err(None) };
        let fits = record.event.key == *key && record.event.args == *args;
        if fits && record.seen(self.now) == ApprovalSeen::Approved { Ok(record) } else { Err(Some(record)) }
    }

    /// Notes that a token has spent an approval.
    pub fn spend(&mut self, record: ApprovalRecord, token: u64) -> Result<()> {
        let mut event = record.event;
        event.spent_by = token;
        self.write_approval(Some(record.row), event, ApprovalWhat::Spent, token, "", "").map(drop)
    }

    /// A resend goes on under the approval that was spent already.
    pub fn pass_on(&mut self, old_token: u64, token: u64) -> Result<()> {
        match self.spent_by(old_token) {
            Some(record) => self.spend(record, token),
            None => Ok(()),
        }
    }

    /// Gives the approval back that a released or not-done token had spent. Its deadline is unmoved.
    pub fn give_approval_back(&mut self, token: u64) -> Result<()> {
        let Some(record) = self.spent_by(token) else { return Ok(()) };
        let mut event = record.event;
        event.spent_by = 0;
        self.write_approval(Some(record.row), event, ApprovalWhat::Returned, token, "", "").map(drop)
    }

    /// Records a request, or finds the one that stands.
    pub fn request(&mut self, work: &RequestWork) -> Result<Reply> {
        if let Some(record) = self.newest_approval(&work.key, &work.args) {
            let over = match record.seen(self.now) {
                ApprovalSeen::Pending | ApprovalSeen::Approved => false,
                ApprovalSeen::Denied | ApprovalSeen::Withdrawn | ApprovalSeen::Expired | ApprovalSeen::Spent => true,
            };
            if !(over && work.again) {
                return Ok(Reply::Approval(Box::new(record), Decided::Same));
            }
        }
        let id = self.pen.meta.next_sequence;
        self.store_body(id, &work.shown)?;
        let event = ApprovalEvent {
            id,
            key: work.key,
            args: work.args,
            deadline_ms: self.now.early.saturating_add(work.valid_ms).min(FOREVER - 1),
            remember_s: work.remember_s,
            decision: DecisionRule::Pending,
            spent_by: 0,
            changed_ms: 0,
            shown: work.shown.body,
            scope: work.scope.clone(),
            label: work.label.clone(),
            lines: Vec::new(),
        };
        let record = self.write_approval(None, event, ApprovalWhat::Requested, 0, &work.by, "")?;
        Ok(Reply::Approval(Box::new(record), Decided::Applied))
    }

    /// The first decision on a pending request stands; a deny revokes an approval.
    pub fn decide_approval(&mut self, id: u64, decide: Decide, by: &str, why: &str) -> Result<Reply> {
        let Some(record) = self.approval(id) else {
            return Err(
                Error::bad_input(format!("there is no approval {id}")).next("`onceledger approvals` lists them")
            );
        };
        let expired = self.now.early >= record.event.deadline_ms;
        let (decision, what) = match (decide, record.event.decision) {
            (Decide::Approve, DecisionRule::Pending) if !expired => (DecisionRule::Approved, ApprovalWhat::Approved),
            (Decide::Deny, DecisionRule::Pending | DecisionRule::Approved) => {
                (DecisionRule::Denied, ApprovalWhat::Denied)
            }
            (Decide::Withdraw, DecisionRule::Pending | DecisionRule::Approved) if record.event.spent_by == 0 => {
                (DecisionRule::Withdrawn, ApprovalWhat::Withdrawn)
            }
            (Decide::Redact, decision) if record.event.shown.place != Place::Nowhere => {
                (decision, ApprovalWhat::Redacted)
            }
            (Decide::Approve, DecisionRule::Approved)
            | (Decide::Deny, DecisionRule::Denied)
            | (Decide::Withdraw, DecisionRule::Withdrawn)
            | (Decide::Redact, _) => return Ok(Reply::Approval(Box::new(record), Decided::Same)),
            (Decide::Approve, DecisionRule::Pending | DecisionRule::Denied | DecisionRule::Withdrawn)
            | (Decide::Deny, DecisionRule::Withdrawn)
            | (Decide::Withdraw, DecisionRule::Pending | DecisionRule::Approved | DecisionRule::Denied) => {
                return Ok(Reply::Approval(Box::new(record), Decided::Conflict));
            }
        };
        let mut event = record.event;
        event.decision = decision;
        if what == ApprovalWhat::Redacted {
            if let Some(row) = event.shown.row(record.row) {
                self.drop_body(row);
            }
            event.shown.place = Place::Nowhere;
        }
        let record = self.write_approval(Some(record.row), event, what, 0, by, why)?;
        Ok(Reply::Approval(Box::new(record), Decided::Applied))
    }

    fn write_approval(
        &mut self,
        old_row: Option<u64>,
        mut event: ApprovalEvent,
        what: ApprovalWhat,
        token: u64,
        by: &str,
        why: &str,
    ) -> Result<ApprovalRecord> {
        event.changed_ms = self.now.late_up;
        self.pen.due.approval_of(&event);
        let line = ApprovalLine { what, token, wall_ms: self.now.wall, by: by.to_owned(), why: why.to_owned() };
        event.lines.push(line);
        condense(&mut event.lines);
        self.pen.garbage += u64::from(old_row.is_some());
        self.put_approval(event)
    }

    fn put_approval(&mut self, mut event: ApprovalEvent) -> Result<ApprovalRecord> {
        let (row, _) = self.write_row(0, 0, Event::Approval(Box::new(event.clone())))?;
        event.shown = replay::placed(event.shown, row);
        let record = ApprovalRecord { row, event };
        self.pen.side.approvals.insert(record.event.id, Some(record.clone()));
        Ok(record)
    }

    /// Writes an approval again where the row at `sequence` is its newest and it is still remembered.
    pub fn keep_approval(&mut self, sequence: u64, event: &ApprovalEvent) -> Result<bool> {
        let held = self.held_approval(event.id).filter(|record| record.row == sequence);
        let Some(record) = held else { return Ok(false) };
        if self.is_over(&record.event) {
            self.forget_approval(&record);
            return Ok(false);
        }
        self.put_approval(record.event)?;
        Ok(true)
    }

    /// Forgets up to `limit` approvals that are due. Gives back how many.
    pub fn sweep_approvals(&mut self, limit: usize) -> u64 {
        let mut forgotten = 0;
        for id in self.pen.due.take_approvals(self.now, limit) {
            let Some(record) = self.held_approval(id) else { continue };
            if self.is_over(&record.event) {
                self.forget_approval(&record);
                forgotten += 1;
            } else if due_ms(&record.event) <= self.now.late {
                // Its deadline or its key lasts longer: looked at again after another retention.
                self.pen.due.approval(record.event.id, record.event.remember_s, self.now.late);
            }
        }
        forgotten
    }

    /// Takes an approval out of memory and its body out of the file. Its row is garbage now.
    fn forget_approval(&mut self, record: &ApprovalRecord) {
        if let Some(row) = record.event.shown.row(record.row) {
            self.drop_body(row);
        }
        self.pen.garbage += 1;
        self.pen.side.approvals.insert(record.event.id, None);
    }

    fn is_over(&self, event: &ApprovalEvent) -> bool {
        let key = match self.pen.overlay.get(&event.key) {
            Some(record) => *record,
            None => self.core.index.get(&event.key),
        };
        is_over(event, key.as_ref(), self.now)
    }
}
