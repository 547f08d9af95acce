//! Compare-and-set over many claims and cells: all of them in one commit, or none (P7).

use std::collections::BTreeSet;

use crate::approval::ApprovalId;
use crate::cell::{self, Cell, Version};
use crate::claim::{Claim, Claimed, Recovery};
use crate::engine::request::{CellWork, Change, Refused, Reply, TransactionWork, Work};
use crate::engine::side::{self, ApprovalNeed};
use crate::engine::sync::Arc;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Grant, prepare};
use crate::ledger::{Ledger, unexpected};
use crate::once;
use crate::outcome::Outcome;

/// A transaction in the making. Nothing is written before [`commit`](Transaction::commit).
#[derive(Debug)]
#[must_use = "a transaction does nothing until it is committed"]
pub struct Transaction {
    ledger: Ledger,
    claims: Vec<Claim>,
    cells: Vec<Member>,
    spends: Vec<ApprovalId>,
}

/// A cell's part: what must stand, and what becomes of it.
#[derive(Debug)]
struct Member {
    name: String,
    /// `Some(None)`: no cell of that name. `None`: nothing was said, which is bad input.
    expect: Option<Option<Version>>,
    change: Write,
}

#[derive(Debug)]
enum Write {
    Nothing,
    Set(Outcome),
    Delete,
    /// Said twice, which is bad input.
    Twice,
}

/// What became of a transaction.
#[derive(Debug)]
#[must_use]
pub enum Transacted {
    /// All of it is on disk.
    Committed(Committed),
    /// Nothing of it was written. Every member that stood in its way, with what stands there.
    Refused(Vec<Refusal>),
}

/// What a committed transaction gives.
#[derive(Debug)]
#[non_exhaustive]
pub struct Committed {
    /// The grants, in the order of the claims.
    pub grants: Vec<Grant>,
    /// The cells in the order in which they were first named, with the version that stands now; `None`
    /// where there is none.
    pub versions: Vec<(String, Option<Version>)>,
}

/// A member that stood in the way.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A claim was not granted.
    Claim {
        /// Which claim, counted from 0.
        index: usize,
        /// What it was answered; never a grant.
        stands: Claimed,
    },
    /// A cell is not at the expected version.
    Cell {
        /// Its name.
        name: String,
        /// What stands there.
        stands: Option<Cell>,
    },
}

impl Ledger {
    /// Begins a transaction.
    pub fn transaction(&self) -> Transaction {
        Transaction { ledger: self.clone(), claims: Vec::new(), cells: Vec::new(), spends: Vec::new() }
    }
}

impl Transaction {
    /// The most members, claims and cells together.
    pub const MEMBERS_MAX: usize = 1024;

    /// Adds a claim. It may need an approval; it may neither wait nor probe.
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Lets the claim of the approval's key spend this approval.
    pub fn spend(mut self, approval: ApprovalId) -> Self {
        self.spends.push(approval);
        self
    }

    /// Demands that a cell is at this version.
    pub fn expect_cell(mut self, name: impl AsRef<str>, version: Version) -> Self {
        self.expect(name.as_ref(), Some(version));
        self
    }

    /// Demands that there is no cell of this name.
    pub fn expect_absent(mut self, name: impl AsRef<str>) -> Self {
        self.expect(name.as_ref(), None);
        self
    }

    /// Writes a cell. Its version, or its absence, must be expected too.
    pub fn set_cell(mut self, name: impl AsRef<str>, value: impl Into<Outcome>) -> Self {
        self.write(name.as_ref(), Write::Set(value.into()));
        self
    }

    /// Deletes a cell. Its version must be expected too.
    pub fn delete_cell(mut self, name: impl AsRef<str>) -> Self {
        self.write(name.as_ref(), Write::Delete);
        self
    }

    fn member(&mut self, name: &str) -> usize {
        let found = self.cells.iter().position(|member| member.name == name);
        found.unwrap_or_else(|| {
            self.cells.push(Member { name: name.to_owned(), expect: None, change: Write::Nothing });
            self.cells.len() - 1
        })
    }

    fn expect(&mut self, name: &str, version: Option<Version>) {
        let at = self.member(name);
        if let Some(member) = self.cells.get_mut(at) {
            if member.expect.is_some() {
                member.change = Write::Twice;
            }
            member.expect = Some(version);
        }
    }

    fn write(&mut self, name: &str, write: Write) {
        let at = self.member(name);
        if let Some(member) = self.cells.get_mut(at) {
            member.change = if matches!(member.change, Write::Nothing) { write } else { Write::Twice };
        }
    }

    /// Commits: all of it is on disk when this returns, or nothing.
    ///
    /// # Errors
    /// `BadInput` for a key, cell or approval named twice, a spend without its claim, a change without
    /// its expectation, a claim that waits or probes, or too many members: nothing is written.
    /// `Unknown`: all of it may be on disk, or nothing; no effect may run.
    pub fn commit(self) -> Result<Transacted> {
        let (work, claims) = self.work()?;
        let names: Vec<String> = work.cells.iter().map(|cell| cell.name.clone()).collect();
        let reply = self.ledger.core().call(Work::Transaction(Box::new(work)))?;
        transacted(&self.ledger, &claims, &names, reply)
    }

    /// [`commit`](Transaction::commit) as a future. Dropped before it was decided, it writes nothing;
    /// dropped after that and before it is ready, it gives back what it was granted, and cells that were
    /// written stand.
    pub async fn commit_async(self) -> Result<Transacted> {
        let (work, claims) = self.work()?;
        let names: Vec<String> = work.cells.iter().map(|cell| cell.name.clone()).collect();
        let core = Arc::clone(self.ledger.core());
        let receive = core.send(Work::Transaction(Box::new(work)))?;
        let reply = once::Claiming::new(core, receive).await?;
        transacted(&self.ledger, &claims, &names, reply)
    }

    /// Checks the members once, and makes them ready for the writer.
    fn work(&self) -> Result<(TransactionWork, Vec<Claim>)> {
        let count = self.claims.len() + self.cells.len();
        if count > Transaction::MEMBERS_MAX {
            let what = format!("a transaction of {count} members is over the limit of {}", Transaction::MEMBERS_MAX);
            return Err(Error::bad_input(what).next("split it"));
        }
        let claims = self.approved_claims()?;
        let (mut keys, mut approvals) = (BTreeSet::new(), BTreeSet::new());
        for claim in &claims {
            if let Some(ApprovalNeed::This(id)) = claim.approval
                && !approvals.insert(id)
            {
                return Err(Error::bad_input(format!("approval {id} is named twice in one transaction")));
            }
            if !keys.insert(*claim.key().digest()) {
                return Err(Error::bad_input(format!("{} is named twice in one transaction", claim.key())));
            }
            once::check_not_inside(self.ledger.core(), claim.key())?;
        }
        let work = claims.iter().map(|claim| self.ledger.claim_work(claim)).collect::<Result<Vec<_>>>()?;
        let cells = self.cells.iter().map(cell_work).collect::<Result<Vec<_>>>()?;
        Ok((TransactionWork { claims: work, cells }, claims))
    }

    fn approved_claims(&self) -> Result<Vec<Claim>> {
        let mut claims = self.claims.clone();
        for claim in &claims {
            if claim.wait.is_some() || matches!(claim.recovery, Recovery::Reconcile(_)) {
                return Err(Error::bad_input("a claim inside a transaction may neither wait nor probe")
                    .next("claim it alone, or leave `wait` and the probe out"));
            }
        }
        for id in &self.spends {
            let key = side::key_of_approval(self.ledger.core(), id.0)?;
            let claim = claims.iter_mut().find(|claim| key.as_ref() == Some(claim.key().digest()));
            let Some(claim) = claim else {
                return Err(Error::bad_input(format!("approval {id} is spent without the claim of its key"))
                    .next("add the claim that the approval is for"));
            };
            if claim.approval.is_some() {
                return Err(Error::bad_input(format!("the claim of approval {id} names an approval twice")));
            }
            *claim = claim.clone().approved_by(*id);
        }
        Ok(claims)
    }
}

fn cell_work(member: &Member) -> Result<CellWork> {
    let name = &member.name;
    cell::check_name(name)?;
    let Some(expect) = member.expect else {
        return Err(Error::bad_input(format!("cell {name:?} is changed without saying what is expected there"))
            .next("add expect_cell or expect_absent"));
    };
    let change = match &member.change {
        Write::Nothing => Change::Nothing,
        Write::Twice => return Err(Error::bad_input(format!("cell {name:?} is named twice in one transaction"))),
        Write::Delete if expect.is_none() => {
            return Err(Error::bad_input(format!("cell {name:?} is deleted where it is expected to be absent")));
        }
        Write::Delete => Change::Delete,
        Write::Set(value) => {
            cell::check_value(name, value)?;
            Change::Set(prepare(Some(value), None, Cell::VALUE_BYTES_MAX))
        }
    };
    Ok(CellWork { name: name.clone(), expect: expect.map(|version| version.0), change })
}

fn transacted(ledger: &Ledger, claims: &[Claim], names: &[String], reply: Reply) -> Result<Transacted> {
    match reply {
        Reply::Transacted { grants, versions } => {
            let (mut held, mut closed) = (Vec::with_capacity(grants.len()), None);
            for (claim, granted) in claims.iter().zip(grants) {
                match Grant::new(Arc::clone(ledger.core()), claim.key().clone(), granted) {
                    Ok(grant) => held.push(grant),
                    Err(error) => closed = closed.or(Some(error)),
                }
            }
            if let Some(error) = closed {
                // No effect has begun. What else was written stands, and nobody is told of it.
                held.into_iter().for_each(Grant::give_back);
                return Err(error.again(ErrorKind::Unknown));
            }
            let grants = held;
            let versions = names.iter().cloned().zip(versions.into_iter().map(|version| version.map(Version)));
            Ok(Transacted::Committed(Committed { grants, versions: versions.collect() }))
        }
        Reply::Refused(refused) => {
            let refusal = |refused| match refused {
                Refused::Claim { index, reply } => {
                    let claim = claims.get(index).ok_or_else(|| unexpected("a transaction"))?;
                    Ok(Refusal::Claim { index, stands: ledger.claimed(claim, reply)? })
                }
                Refused::Cell { index, stands } => {
                    let name = names.get(index).ok_or_else(|| unexpected("a transaction"))?;
                    let stands = stands.map(|record| cell::read(ledger.core(), name, &record)).transpose()?.flatten();
                    Ok(Refusal::Cell { name: name.clone(), stands })
                }
            };
            refused.into_iter().map(refusal).collect::<Result<Vec<_>>>().map(Transacted::Refused)
        }
        _ => Err(unexpected("a transaction")),
    }
}
