//! Cells and approvals: what the log holds beside claims. Both are small, so each change writes the
//! whole of it, and all of them are in memory. Their readers never meet the writer (P7, P8).

use std::collections::BTreeMap;

use crate::engine::clock::Now;
use crate::engine::event::{
    ApprovalEvent, ApprovalLine, ApprovalWhat, Body, CellEvent, DecisionRule, Event, FOREVER, Place,
};
use crate::engine::index::{DigestMap, KeyDigest, TokenMap};
use crate::engine::replay;
use crate::engine::request::{Prepared, Reply};
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
            self.by_key.entry(key).or_default().push(id);
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
            self.store_body(prepared);
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

    /// An approval as the batch so far leaves it.
    pub fn approval(&self, id: u64) -> Option<ApprovalRecord> {
        match self.pen.side.approvals.get(&id) {
            Some(changed) => changed.clone(),
            None => self.core.side.read().approvals.get(&id).cloned(),
        }
    }

    /// The newest approval of a key for these arguments.
    fn newest_approval(&self, key: &KeyDigest, args: &[u8; 32]) -> Option<ApprovalRecord> {
        let fits = |record: &ApprovalRecord| record.event.key == *key && record.event.args == *args;
        let committed = self.core.side.read().of_key(key).filter(|record| fits(record)).last().map(|old| old.event.id);
        let batch = self.pen.side.approvals.iter().rev();
        let batch = batch.filter_map(|(id, record)| record.as_ref().filter(|record| fits(record)).map(|_| *id)).next();
        self.approval(committed.max(batch)?)
    }

    /// The approval that a token spent.
    fn spent_by(&self, token: u64) -> Option<ApprovalRecord> {
        let batch = self.pen.side.approvals.values().flatten().find(|record| record.event.spent_by == token);
        if let Some(record) = batch {
            return Some(record.clone());
        }
        let id = self.core.side.read().by_token.get(&token).copied()?;
        self.approval(id).filter(|record| record.event.spent_by == token)
    }

    /// The approval that a claim may spend, or what stands in its way.
    pub fn spendable(
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
        self.store_body(&work.shown);
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
        event.changed_ms = self.now.late;
        let line = ApprovalLine { what, token, wall_ms: self.now.wall, by: by.to_owned(), why: why.to_owned() };
        event.lines.push(line);
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
        let Some(record) = self.approval(event.id).filter(|record| record.row == sequence) else { return Ok(false) };
        if !self.is_over(&record.event) {
            self.put_approval(record.event)?;
            return Ok(true);
        }
        if let Some(row) = record.event.shown.row(record.row) {
            self.drop_body(row);
        }
        self.pen.side.approvals.insert(event.id, None);
        // It was no garbage until now.
        Ok(true)
    }

    /// Whether nobody can ask for an approval any more: its retention has passed, and no open claim
    /// could give it back.
    fn is_over(&self, event: &ApprovalEvent) -> bool {
        let open = event.spent_by != 0 && self.pen.open.contains_key(&event.spent_by);
        let keep_ms = u64::from(event.remember_s) * 1000;
        let until = event.changed_ms.saturating_add(keep_ms);
        !open && event.remember_s != u32::MAX && self.now.late >= until && self.now.early >= event.deadline_ms
    }
}
