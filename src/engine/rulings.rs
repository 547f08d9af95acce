//! What each request comes to: the pure table of `state` asked with what the batch so far leaves, and
//! its decision appended as events.

use crate::engine::codec::{self, LeftOutcome, LeftSettlement};
use crate::engine::event::{
    Body, DoubtEvent, End, Event, FOREVER, GrantEvent, LateEvent, Place, Reason, RecoveryRule, ReleaseEvent,
    RenewEvent, ResolveEvent, SessionEvent, SettleEvent, Terms, ToldWhat, VerdictRule,
};
use crate::engine::index::KeyDigest;
use crate::engine::request::{
    Change, ClaimWork, Granted, Prepared, Refused, Reply, Request, ResolveWork, TransactionWork, VerdictWork, Work,
};
use crate::engine::session::{self, Sight};
use crate::engine::side::ApprovalRecord;
use crate::engine::state::{self, Ask, Decision, Holder, Probe, Record, Seen, Stored};
use crate::engine::store::Store;
use crate::engine::sync::Arc;
use crate::engine::turn::{NEW_TOKEN, Turn};
use crate::engine::writer::{Decided, SessionRow};
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// What a claim comes to.
enum Judged {
    Grant(Plan),
    Refused(Reply),
}

/// A grant that nothing stands in the way of.
struct Plan {
    record: Option<Record>,
    attempt: u32,
    first_attempt_s: u32,
    fresh: bool,
    resumed: bool,
    approval: Option<Box<ApprovalRecord>>,
}

impl Turn<'_> {
    /// Decides one request.
    pub fn decide(&mut self, request: &mut Request) -> Result<Decided> {
        let answer = match &mut request.work {
            Work::Claim(claim) => return self.claim(claim),
            Work::Settle(work) => self.settle(&work.key, work.token, work.end, &work.prepared)?,
            Work::Renew { key, token, lease_ms } => self.renew(key, *token, *lease_ms)?,
            Work::Release { key, token, why } => self.release(key, *token, why)?,
            Work::Doubt { key, token, reason, why } => self.doubt(key, *token, *reason, why)?,
            Work::Resolve(work) => self.resolve(work)?,
            Work::Verdict(work) => return self.verdict(work),
            Work::ProbeOver { key } => {
                self.pen.probing.remove(key);
                Reply::Applied
            }
            Work::Poke { key } => {
                self.woken.push(*key);
                Reply::Applied
            }
            Work::Attend { session } => self.attend(*session)?,
            Work::Sweep { limit, rows } => {
                self.core.keeper.swept();
                Reply::Swept(self.sweep(*limit, *rows)?)
            }
            Work::Transaction(work) => self.transaction(work)?,
            Work::Request(work) => self.request(work)?,
            Work::Decide { id, decide, by, why } => self.decide_approval(*id, *decide, by, why)?,
        };
        Ok(Decided::Answer(answer))
    }

    fn holder(&self, record: &Record) -> Holder {
        if record.standing != Stored::InProgress || record.link == self.pen.own {
            Holder::Alive
        } else {
            Holder::Unknown
        }
    }

    /// The record of a key whose foreign holder was looked at afresh: outcomes it left are applied,
    /// and its end is recorded.
    fn load_afresh(&mut self, key: &KeyDigest) -> Result<(Option<Record>, Holder)> {
        let Some(record) = self.load(key)? else { return Ok((None, Holder::Unknown)) };
        let holder = self.holder(&record);
        if record.standing != Stored::InProgress || holder == Holder::Alive {
            return Ok((Some(record), holder));
        }
        // Everything the look found is recorded, for its other keys too: nobody looks at a session that
        // is known to be over again.
        let holder = self.look_whole(record.link)?;
        Ok((self.load(key)?, holder))
    }

    fn look_at(&self, session: u64) -> Result<Sight> {
        let Some(row) = self.pen.sessions.get(&session) else {
            return Ok(Sight { holder: Holder::Unknown, left: Vec::new() });
        };
        let core = self.core;
        let sight = session::look(&*core.disk, &core.paths.sessions, &row.event.id, &row.event.boot_id, &core.boot_id)?;
        if session != self.pen.own {
            core.seen_session(session, sight.holder);
        }
        Ok(sight)
    }

    /// Applies an outcome that a holder left in its session file, as that token's own settle.
    pub fn take_left(&mut self, left: &LeftOutcome) -> Result<()> {
        let (key, token) = (&left.key, left.token);
        match &left.settlement {
            LeftSettlement::Done(body) | LeftSettlement::Failed(body) => {
                let failed = matches!(left.settlement, LeftSettlement::Failed(_));
                let end = if failed { End::Failed } else { End::Done };
                let place = if body.stored { Place::Here } else { Place::Nowhere };
                let crc = codec::body_checksum(&body.bytes);
                let prepared = Prepared {
                    body: Body {
                        kind: body.kind,
                        error: body.error,
                        len: body.len,
                        crc,
                        place,
                        exit_code: body.exit_code,
                    },
                    outcome: body.stored.then(|| Outcome::new(body.kind, body.error, &body.bytes)),
                };
                self.settle(key, token, end, &prepared)?;
            }
            LeftSettlement::Released(why) => {
                self.release(key, token, why)?;
            }
            LeftSettlement::Uncertain(why) => {
                self.doubt(key, token, Reason::UnknownError, why)?;
            }
        }
        Ok(())
    }

    fn claim(&mut self, work: &mut ClaimWork) -> Result<Decided> {
        Ok(match self.judge(work)? {
            Judged::Grant(plan) => Decided::Answer(Reply::Granted(self.grant(work, plan)?)),
            Judged::Refused(Reply::Stands { seen: Seen::InProgress, .. }) if self.waits_on(work) => Decided::Park,
            Judged::Refused(reply) => Decided::Answer(reply),
        })
    }

    /// What a claim would come to.
    fn judge(&mut self, work: &ClaimWork) -> Result<Judged> {
        let (record, holder) = self.load_afresh(&work.key)?;
        self.judge_record(work, record, holder)
    }

    /// Mismatch first, then standing, then approval.
    fn judge_record(&mut self, work: &ClaimWork, record: Option<Record>, holder: Holder) -> Result<Judged> {
        let probe = match record {
            Some(record) if work.has_probe && !self.pen.probing.contains(&work.key) => {
                Probe::Ready { not_before: record.at.saturating_add(self.core.settle_delay_ms) }
            }
            Some(_) | None => Probe::None,
        };
        let ask = Ask::Claim { fingerprint: work.fingerprint, rule: work.terms.recovery, probe };
        Ok(match (state::decide(record.as_ref(), &ask, self.now, holder), record) {
            (Decision::Grant { attempt, first_attempt_s, fresh, resumed }, record) => {
                let resumes = record.filter(|_| resumed).map(|record| record.token);
                let approval = match self.to_spend(work, resumes) {
                    Ok(approval) => approval,
                    Err(stands) => return Ok(Judged::Refused(Reply::NotApproved(stands))),
                };
                Judged::Grant(Plan { record, attempt, first_attempt_s, fresh, resumed, approval })
            }
            (Decision::Probe, Some(record)) => {
                self.pen.probing.insert(work.key);
                Judged::Refused(Reply::Probe { key: work.key, record: Box::new(record) })
            }
            (Decision::Mismatch, Some(record)) => Judged::Refused(Reply::Mismatch(Box::new(record))),
            (Decision::Stands(seen), record) => {
                let stored_rule = record.is_some_and(|record| record.rule.rule() < work.terms.recovery);
                Judged::Refused(Reply::Stands { record: record.map(Box::new), seen, stored_rule })
            }
            (Decision::Probe | Decision::Mismatch, None)
            | (Decision::Apply | Decision::Same | Decision::Lost | Decision::NoSuchGrant, _) => {
                return Err(Error::damaged("a claim was judged as no claim can be"));
            }
        })
    }

    /// All or nothing: every member is judged before the first is applied.
    fn transaction(&mut self, work: &mut TransactionWork) -> Result<Reply> {
        let mut refused = Vec::new();
        let mut plans = Vec::with_capacity(work.claims.len());
        // All looks first: what one takes out of a session's file may settle any other member.
        let mut holders = Vec::with_capacity(work.claims.len());
        for claim in &work.claims {
            holders.push(self.load_afresh(&claim.key)?.1);
        }
        for (index, (claim, holder)) in work.claims.iter().zip(holders).enumerate() {
            let record = self.load(&claim.key)?;
            match self.judge_record(claim, record, holder)? {
                Judged::Grant(plan) => plans.push(plan),
                Judged::Refused(reply) => refused.push(Refused::Claim { index, reply }),
            }
        }
        for (index, cell) in work.cells.iter().enumerate() {
            let stands = self.cell(&cell.name);
            if stands.as_ref().map(|cell| cell.version) != cell.expect {
                refused.push(Refused::Cell { index, stands });
            }
        }
        if !refused.is_empty() {
            return Ok(Reply::Refused(refused));
        }
        let mut grants = Vec::with_capacity(plans.len());
        for (claim, plan) in work.claims.iter_mut().zip(plans) {
            grants.push(self.grant(claim, plan)?);
        }
        let mut versions = Vec::with_capacity(work.cells.len());
        for cell in &work.cells {
            versions.push(match &cell.change {
                Change::Nothing => cell.expect,
                Change::Set(value) => Some(self.change_cell(&cell.name, Some(value))?),
                Change::Delete => {
                    if cell.expect.is_some() {
                        self.change_cell(&cell.name, None)?;
                    }
                    None
                }
            });
        }
        Ok(Reply::Transacted { grants, versions })
    }

    fn waits_on(&self, work: &ClaimWork) -> bool {
        work.wait_until_ms > 0 && self.core.times.boot_ms() < work.wait_until_ms
    }

    fn grant(&mut self, work: &mut ClaimWork, plan: Plan) -> Result<Granted> {
        self.record_session()?;
        let before = if plan.fresh { None } else { plan.record };
        if plan.fresh
            && let Some(old) = plan.record
        {
            self.pen.garbage += u64::from(old.rows);
        }
        let lease = |lease_ms| self.now.early.saturating_add(lease_ms).min(FOREVER - 1);
        // A resend goes on under the rule that the key's first claim stored; only a vacant key takes a
        // new one.
        let stored = plan.record.filter(|_| plan.resumed).map(|record| record.rule.rule());
        let terms = Terms { recovery: stored.unwrap_or(work.terms.recovery), ..work.terms };
        let event = GrantEvent {
            key: work.key,
            fingerprint: work.fingerprint,
            args: work.args,
            canonical: crate::canonical::CANONICAL_VERSION,
            session: self.pen.own,
            attempt: plan.attempt,
            first_attempt_ms: u64::from(plan.first_attempt_s) * 1000,
            lease_until_ms: work.lease_ms.map_or(FOREVER, lease),
            terms,
            resumed: plan.resumed,
            // A granted claim is not judged again.
            scope: std::mem::take(&mut work.scope),
            label: std::mem::take(&mut work.label),
        };
        let granted = self.append(&work.key, before, NEW_TOKEN, Event::Grant(event))?;
        match (plan.approval, plan.record) {
            (Some(approval), _) => self.spend(*approval, granted.token)?,
            (None, Some(old)) if plan.resumed => self.pass_on(old.token, granted.token)?,
            (None, _) => {}
        }
        Ok(Granted { key: work.key, token: granted.token, attempt: plan.attempt, resumed: plan.resumed })
    }

    /// Makes the session durable before its first grant: file, directory, and a row of the log.
    fn record_session(&mut self) -> Result<()> {
        if self.pen.own != 0 && self.core.session.has_begun() {
            return Ok(());
        }
        self.core.session.begin()?;
        if self.pen.own != 0 {
            return Ok(());
        }
        let head = self.core.session.head;
        let number = self.pen.meta.next_sequence;
        let event = SessionEvent { number, id: head.id, boot_id: head.boot_id, pid: head.pid };
        self.write_row(0, 0, Event::Session(event.clone()))?;
        self.pen.own = number;
        self.pen.sessions.insert(number, SessionRow { event: event.clone(), open: 0 });
        self.core.know_session(&event, true);
        Ok(())
    }

    fn settle(&mut self, key: &KeyDigest, token: u64, end: End, prepared: &Prepared) -> Result<Reply> {
        let record = self.load(key)?;
        let equal = self.says_the_same(record.as_ref(), token, end, prepared)?;
        match state::decide(record.as_ref(), &Ask::Settle { token, equal }, self.now, Holder::Alive) {
            Decision::Apply => {
                let event = Event::Settle(SettleEvent { key: *key, end, body: prepared.body });
                let next = self.append(key, record, token, event)?;
                self.store_body(next.last, prepared)?;
                Ok(Reply::Applied)
            }
            Decision::Lost => self.lost(key, record, token, Some(end), prepared),
            other => Ok(self.unmoved(record, other)),
        }
    }

    /// Stores the body of the event at `sequence`.
    pub fn store_body(&mut self, sequence: u64, prepared: &Prepared) -> Result<()> {
        match &prepared.outcome {
            Some(outcome) => self.pen.batch.append_body(sequence, outcome.clone()),
            None => Ok(()),
        }
    }

    /// Keeps the late outcome of a holder that lost its claim, once per token (P4).
    fn lost(
        &mut self,
        key: &KeyDigest,
        record: Option<Record>,
        token: u64,
        end: Option<End>,
        prepared: &Prepared,
    ) -> Result<Reply> {
        let Some(record) = record else { return Ok(self.unmoved(None, Decision::NoSuchGrant)) };
        let late = |what: &ToldWhat| matches!(what, ToldWhat::LateDone | ToldWhat::LateFailed | ToldWhat::LateReleased);
        let chain = self.chain(&record)?;
        let known = chain.told().any(|told| told.token == token && told.what == ToldWhat::Granted);
        // A release that is told again was this holder's own, and nothing that it lost.
        let again = |what: &ToldWhat| end.is_none() && *what == ToldWhat::Released;
        let recorded = chain.told().any(|told| told.token == token && (late(&told.what) || again(&told.what)));
        if known && !recorded {
            let event = LateEvent { key: *key, end, body: prepared.body };
            let next = self.append(key, Some(record), token, Event::Late(event))?;
            self.store_body(next.last, prepared)?;
        }
        Ok(self.unmoved(Some(record), Decision::Lost))
    }

    fn unmoved(&self, record: Option<Record>, decision: Decision) -> Reply {
        let seen = record.map_or(Seen::Vacant, |record| record.seen(self.now, self.holder(&record)));
        match decision {
            Decision::Same => Reply::Same,
            Decision::Apply => Reply::Applied,
            Decision::Stands(seen) => Reply::Stands { record: record.map(Box::new), seen, stored_rule: false },
            Decision::Lost | Decision::NoSuchGrant | Decision::Mismatch | Decision::Probe | Decision::Grant { .. } => {
                Reply::Lost { record: record.map(Box::new), seen }
            }
        }
    }

    /// Whether a settled record under this token holds the same outcome.
    fn says_the_same(&mut self, record: Option<&Record>, token: u64, end: End, prepared: &Prepared) -> Result<bool> {
        let settled = match end {
            End::Done => Stored::Done,
            End::Failed => Stored::Failed,
        };
        let Some(record) = record.filter(|record| record.token == token && record.standing == settled) else {
            return Ok(false);
        };
        let plain = |body: &Body| Body { place: Place::Nowhere, ..*body };
        let stored = self.chain(record)?.settled_body();
        let Some(stored) = stored.filter(|stored| plain(stored) == plain(&prepared.body)) else { return Ok(false) };
        // One checksum is not one outcome: the bytes decide, for as long as they are kept.
        let (Some(row), Some(outcome)) = (stored.row(0), &prepared.outcome) else { return Ok(true) };
        let kept = match self.pen.batch.body(row) {
            Some(body) => Some(body),
            None => self.store()?.body(row, stored.kind, stored.error)?,
        };
        Ok(kept.is_none_or(|kept| kept == *outcome))
    }

    fn renew(&mut self, key: &KeyDigest, token: u64, lease_ms: u64) -> Result<Reply> {
        let record = self.load(key)?;
        match state::decide(record.as_ref(), &Ask::Renew { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let lease_until_ms = self.now.early.saturating_add(lease_ms).min(FOREVER - 1);
                self.append(key, record, token, Event::Renew(RenewEvent { key: *key, lease_until_ms }))?;
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn release(&mut self, key: &KeyDigest, token: u64, why: &str) -> Result<Reply> {
        let record = self.load(key)?;
        if self.goes_on_for_a_doubt(record.as_ref(), token)? {
            // That this attempt did nothing says nothing of the one that it went on for.
            return self.doubt(key, token, Reason::HolderGone, why);
        }
        match state::decide(record.as_ref(), &Ask::Release { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let event = ReleaseEvent { key: *key, why: why.to_owned() };
                self.append(key, record, token, Event::Release(event))?;
                self.give_approval_back(token)?;
                Ok(Reply::Applied)
            }
            Decision::Lost => self.lost(key, record, token, None, &Prepared { body: Body::NONE, outcome: None }),
            other => Ok(self.unmoved(record, other)),
        }
    }

    /// Whether this token's open grant is a resend: an attempt before it may have had its effect.
    fn goes_on_for_a_doubt(&self, record: Option<&Record>, token: u64) -> Result<bool> {
        let may = |record: &&Record| {
            let resends = matches!(record.rule.rule(), RecoveryRule::Resend(_));
            record.token == token && record.standing.is_open() && record.attempt > 1 && resends
        };
        let Some(record) = record.filter(may) else { return Ok(false) };
        Ok(self.chain(record)?.grant().is_some_and(|grant| grant.resumed))
    }

    fn doubt(&mut self, key: &KeyDigest, token: u64, reason: Reason, why: &str) -> Result<Reply> {
        let record = self.load(key)?;
        match state::decide(record.as_ref(), &Ask::Doubt { token }, self.now, Holder::Alive) {
            Decision::Apply => {
                let event = DoubtEvent { key: *key, reason, why: why.to_owned() };
                self.append(key, record, token, Event::Doubt(event))?;
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn resolve(&mut self, work: &ResolveWork) -> Result<Reply> {
        let (record, holder) = self.load_afresh(&work.key)?;
        let ask = Ask::Resolve { token: work.token, verdict: work.verdict, force: work.force };
        match state::decide(record.as_ref(), &ask, self.now, holder) {
            Decision::Apply => {
                let event = ResolveEvent {
                    key: work.key,
                    verdict: work.verdict,
                    body: work.prepared.body,
                    by: work.by.clone(),
                    why: work.why.clone(),
                    forced: work.force,
                };
                let next = self.append(&work.key, record, work.token, Event::Resolve(event))?;
                self.store_body(next.last, &work.prepared)?;
                if work.verdict == VerdictRule::NotDone {
                    self.give_approval_back(work.token)?;
                }
                Ok(Reply::Applied)
            }
            other => Ok(self.unmoved(record, other)),
        }
    }

    fn verdict(&mut self, work: &mut VerdictWork) -> Result<Decided> {
        self.pen.probing.remove(&work.claim.key);
        let (record, holder) = self.load_afresh(&work.claim.key)?;
        let verdict = if work.found.is_some() { VerdictRule::Done } else { VerdictRule::NotDone };
        let ask = Ask::Resolve { token: work.token, verdict, force: false };
        if state::decide(record.as_ref(), &ask, self.now, holder) == Decision::Apply {
            let none = Prepared { body: Body::NONE, outcome: None };
            let prepared = work.found.as_ref().unwrap_or(&none);
            let event = ResolveEvent {
                key: work.claim.key,
                verdict,
                body: prepared.body,
                by: "probe".to_owned(),
                why: String::new(),
                forced: false,
            };
            let next = self.append(&work.claim.key, record, work.token, Event::Resolve(event))?;
            self.store_body(next.last, prepared)?;
            if verdict == VerdictRule::NotDone {
                self.give_approval_back(work.token)?;
            }
        }
        // A stale verdict changed nothing; the claim is judged by what stands now.
        self.claim(&mut work.claim)
    }

    /// Records a doubt about a claim that is in progress.
    pub fn record_doubt(&mut self, key: &KeyDigest, record: &Record, event: DoubtEvent) -> Result<()> {
        self.append(key, Some(*record), record.token, Event::Doubt(event)).map(drop)
    }

    fn attend(&mut self, session: u64) -> Result<Reply> {
        self.look_whole(session)?;
        Ok(Reply::Applied)
    }

    /// Looks at a session: takes what it left, and records its end for every open claim.
    pub fn look_whole(&mut self, session: u64) -> Result<Holder> {
        let sight = self.look_at(session)?;
        for left in &sight.left {
            self.take_left(left)?;
        }
        if session == self.pen.own {
            self.core.session.took(sight.left.len());
        }
        if sight.holder == Holder::Gone {
            self.end_session(session)?;
        }
        Ok(sight.holder)
    }

    /// Records that the holder of every open claim of a session is gone.
    pub fn end_session(&mut self, session: u64) -> Result<()> {
        let mut open: Vec<(u64, KeyDigest)> = self.pen.open.iter().map(|(token, key)| (*token, *key)).collect();
        // In the order of the grants: what is written must not depend on a hash table.
        open.sort_unstable();
        for (token, key) in open {
            let Some(record) = self.load(&key)? else { continue };
            if record.link == session && record.token == token && record.standing == Stored::InProgress {
                self.doubt(&key, token, Reason::HolderGone, "")?;
            }
        }
        Ok(())
    }

    /// Lets a claimer wait for the key.
    pub fn park(&mut self, request: Request) {
        // A prober whose verdict came too late goes on as a claimer like any other.
        let Request { work, cell } = request;
        let work = match work {
            Work::Claim(work) => work,
            Work::Verdict(work) => Box::new(work.claim),
            _ => return,
        };
        let now_ms = self.core.times.boot_ms();
        let lapse = self.load(&work.key).ok().flatten().filter(|record| record.at != FOREVER);
        // One millisecond past the lapse, by the slower clock at worst; the look itself decides.
        let lapse =
            lapse.map(|record| record.at.saturating_sub(self.now.early).saturating_add(now_ms).saturating_add(1));
        let key = work.key;
        let wake_at = lapse.map_or(work.wait_until_ms, |lapse| lapse.min(work.wait_until_ms));
        self.core.wake_later(wake_at, key);
        self.pen.waiting.entry(key).or_default().push_back(Request { work: Work::Claim(work), cell });
    }

    /// The store, for what the index does not hold.
    pub fn store(&self) -> Result<Arc<Store>> {
        self.core.store()
    }
}
