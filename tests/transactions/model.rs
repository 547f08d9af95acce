//! What design sections 2, 3, 6 and 7 say, written down once more and from them alone: no code of the
//! ledger is in here. Numbers that the ledger gives out (tokens, ids, versions) are taken from it,
//! and only their order is checked.

use std::collections::{BTreeMap, BTreeSet};

/// What a claim asks for. `body` is (guarded amount, free note).
#[derive(Clone, Debug)]
pub struct Ask {
    pub key: usize,
    pub body: (u8, u8),
    pub need: Need,
    pub resend: bool,
}

#[derive(Clone, Debug)]
pub enum Need {
    None,
    Newest,
    /// The approval in this place of the list of all that were ever asked for.
    This(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Vacant,
    InProgress,
    Done,
    Uncertain,
}

#[derive(Clone, Debug)]
pub struct KeyState {
    pub standing: Standing,
    pub token: u64,
    pub attempt: u32,
    pub outcome: String,
    amount: u8,
    resend: bool,
    first_attempt_s: u64,
    /// Whether its grant is a resend: an attempt before it may have had its effect.
    resumed: bool,
    /// Late time since when it is settled or vacant.
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Nothing,
    Yes,
    No,
    Withdrawn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    Pending,
    Approved,
    Denied,
    Withdrawn,
    Expired,
    Spent,
}

#[derive(Clone, Debug)]
pub struct ApprovalModel {
    pub id: u64,
    pub key: usize,
    pub body: (u8, u8),
    pub said: Said,
    pub spent_by: Option<u64>,
    pub shown: bool,
    deadline: u64,
    changed: u64,
}

/// What a claim comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With the place of the approval that it spends or goes on under.
    Grant(Option<usize>),
    InProgress,
    Done(String),
    Uncertain,
    Mismatch,
    /// The id of what stands, if anything does.
    NotApproved(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Applied,
    Same,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    Applied,
    Same,
    Conflict,
    /// There is no such approval any more.
    Unknown,
}

#[derive(Debug, Default)]
pub struct Model {
    pub early: u64,
    pub late: u64,
    pub keys: BTreeMap<usize, KeyState>,
    pub approvals: Vec<ApprovalModel>,
    pub cells: BTreeMap<String, (u64, String)>,
}

pub const REMEMBER_MS: u64 = 1_000_000;
pub const WINDOW_S: u64 = 600;

impl Model {
    /// The key, unless its retention has passed.
    pub fn live(&self, key: usize) -> Option<&KeyState> {
        self.keys.get(&key).filter(|state| match state.standing {
            Standing::InProgress | Standing::Uncertain => true,
            Standing::Done | Standing::Vacant => self.late < state.since + REMEMBER_MS,
        })
    }

    pub fn standing(&self, key: usize) -> Standing {
        self.live(key).map_or(Standing::Vacant, |state| state.standing)
    }

    pub fn worth(&self, approval: &ApprovalModel) -> Worth {
        match (approval.spent_by, approval.said) {
            (Some(_), _) => Worth::Spent,
            (None, Said::No) => Worth::Denied,
            (None, Said::Withdrawn) => Worth::Withdrawn,
            (None, Said::Nothing | Said::Yes) if self.early >= approval.deadline => Worth::Expired,
            (None, Said::Nothing) => Worth::Pending,
            (None, Said::Yes) => Worth::Approved,
        }
    }

    /// Whether it can still be asked for: within its retention, its deadline, or that of its spender.
    pub fn is_remembered(&self, approval: &ApprovalModel) -> bool {
        let spender = self.live(approval.key).is_some_and(|key| Some(key.token) == approval.spent_by);
        spender || self.late < approval.changed + REMEMBER_MS || self.early < approval.deadline
    }

    pub fn known(&self, place: usize) -> Option<&ApprovalModel> {
        self.approvals.get(place).filter(|approval| self.is_remembered(approval))
    }

    fn newest(&self, key: usize, body: (u8, u8)) -> Option<usize> {
        let fits = |place: &usize| {
            let approval = &self.approvals[*place];
            approval.key == key && approval.body == body && self.is_remembered(approval)
        };
        (0..self.approvals.len()).rev().find(fits)
    }

    /// Mismatch, then standing, then approval.
    pub fn judge(&self, ask: &Ask) -> Verdict {
        let state = self.live(ask.key);
        let mut under = None;
        if let Some(state) = state.filter(|state| state.standing != Standing::Vacant) {
            if state.amount != ask.body.0 {
                return Verdict::Mismatch;
            }
            match state.standing {
                Standing::InProgress => return Verdict::InProgress,
                Standing::Done => return Verdict::Done(state.outcome.clone()),
                Standing::Uncertain | Standing::Vacant => {}
            }
            let in_window = self.early < (state.first_attempt_s + WINDOW_S) * 1000;
            if !(state.resend && ask.resend && in_window) {
                return Verdict::Uncertain;
            }
            under = self.approvals.iter().position(|approval| approval.spent_by == Some(state.token));
        }
        if let Some(place) = under {
            let spent = &self.approvals[place];
            return if spent.body == ask.body {
                Verdict::Grant(Some(place))
            } else {
                Verdict::NotApproved(Some(spent.id))
            };
        }
        let place = match ask.need {
            Need::None => return Verdict::Grant(None),
            Need::Newest => self.newest(ask.key, ask.body),
            Need::This(place) => self.known(place).map(|_| place),
        };
        let Some(place) = place else { return Verdict::NotApproved(None) };
        let approval = &self.approvals[place];
        let fits = approval.key == ask.key && approval.body == ask.body;
        if fits && self.worth(approval) == Worth::Approved {
            Verdict::Grant(Some(place))
        } else {
            Verdict::NotApproved(Some(approval.id))
        }
    }

    /// Applies what was judged a grant.
    pub fn grant(&mut self, ask: &Ask, under: Option<usize>, token: u64) {
        let before = self.live(ask.key);
        let attempt = before.map_or(1, |state| state.attempt + 1);
        let first_attempt_s = before.map_or(self.early / 1000, |state| state.first_attempt_s);
        let state = KeyState {
            standing: Standing::InProgress,
            token,
            attempt,
            outcome: String::new(),
            amount: ask.body.0,
            resend: ask.resend,
            first_attempt_s,
            resumed: before.is_some_and(|state| state.standing == Standing::Uncertain),
            since: 0,
        };
        self.keys.insert(ask.key, state);
        if let Some(place) = under {
            self.approvals[place].spent_by = Some(token);
            self.approvals[place].changed = self.late;
        }
    }

    fn give_back(&mut self, token: u64) {
        for approval in self.approvals.iter_mut().filter(|approval| approval.spent_by == Some(token)) {
            approval.spent_by = None;
            approval.changed = self.late;
        }
    }

    /// The holder ends its grant: with an outcome, or by giving the key back.
    pub fn settle(&mut self, key: usize, token: u64, outcome: Option<&str>) -> Settled {
        let late = self.late;
        if self.live(key).is_none_or(|state| state.token != token) {
            return Settled::Lost;
        }
        let Some(state) = self.keys.get_mut(&key) else { return Settled::Lost };
        match (state.standing, outcome) {
            (Standing::InProgress | Standing::Uncertain, Some(outcome)) => {
                *state = KeyState { standing: Standing::Done, outcome: outcome.into(), since: late, ..state.clone() };
                Settled::Applied
            }
            (Standing::InProgress, None) if state.resumed => {
                state.standing = Standing::Uncertain;
                Settled::Applied
            }
            (Standing::Uncertain, None) if state.resumed => Settled::Same,
            (Standing::InProgress | Standing::Uncertain, None) => {
                *state = KeyState { standing: Standing::Vacant, since: late, ..state.clone() };
                self.give_back(token);
                Settled::Applied
            }
            (Standing::Done, Some(outcome)) if state.outcome == outcome => Settled::Same,
            (Standing::Vacant, None) => Settled::Same,
            (Standing::Done | Standing::Vacant, _) => Settled::Lost,
        }
    }

    /// The grant ends without a settle.
    pub fn doubt(&mut self, key: usize, token: u64) -> Settled {
        match self.keys.get_mut(&key).filter(|state| state.token == token) {
            Some(state) if state.standing == Standing::InProgress => {
                state.standing = Standing::Uncertain;
                Settled::Applied
            }
            Some(state) if state.standing == Standing::Uncertain => Settled::Same,
            Some(_) | None => Settled::Lost,
        }
    }

    /// True where it applies: the claim is in doubt.
    pub fn resolve(&mut self, key: usize, done: Option<&str>) -> bool {
        let late = self.late;
        let Some(state) = self.keys.get_mut(&key).filter(|state| state.standing == Standing::Uncertain) else {
            return false;
        };
        state.since = late;
        match done {
            Some(outcome) => {
                state.standing = Standing::Done;
                state.outcome = outcome.into();
            }
            None => {
                state.standing = Standing::Vacant;
                let token = state.token;
                self.give_back(token);
            }
        }
        true
    }

    /// The place of the request that stands, or `None` where a new one is made.
    pub fn standing_request(&self, key: usize, body: (u8, u8), again: bool) -> Option<usize> {
        let place = self.newest(key, body)?;
        let open = matches!(self.worth(&self.approvals[place]), Worth::Pending | Worth::Approved);
        (open || !again).then_some(place)
    }

    pub fn request(&mut self, key: usize, body: (u8, u8), valid_ms: u64, id: u64) {
        self.approvals.push(ApprovalModel {
            id,
            key,
            body,
            said: Said::Nothing,
            spent_by: None,
            shown: true,
            deadline: self.early + valid_ms,
            changed: self.late,
        });
    }

    pub fn decide(&mut self, place: usize, said: Said) -> Decided {
        let Some(approval) = self.known(place) else { return Decided::Unknown };
        let expired = self.early >= approval.deadline;
        let decided = match (approval.said, said) {
            (old, new) if old == new => Decided::Same,
            (Said::Nothing, Said::Yes) if !expired => Decided::Applied,
            (Said::Nothing | Said::Yes, Said::No) => Decided::Applied,
            (Said::Nothing | Said::Yes, Said::Withdrawn) if approval.spent_by.is_none() => Decided::Applied,
            _ => Decided::Conflict,
        };
        if decided == Decided::Applied {
            self.approvals[place].said = said;
            self.approvals[place].changed = self.late;
        }
        decided
    }

    pub fn redact(&mut self, place: usize) -> Decided {
        match self.known(place).map(|approval| approval.shown) {
            None => Decided::Unknown,
            Some(false) => Decided::Same,
            Some(true) => {
                self.approvals[place].shown = false;
                self.approvals[place].changed = self.late;
                Decided::Applied
            }
        }
    }

    /// The process ends, or opens the file again: whoever has no ticket any more is in doubt.
    pub fn reopen(&mut self, tickets: &BTreeSet<u64>) {
        for state in self.keys.values_mut() {
            if state.standing == Standing::InProgress && !tickets.contains(&state.token) {
                state.standing = Standing::Uncertain;
            }
        }
    }
}
