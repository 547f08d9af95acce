//! What a transaction over two keys and a cell may leave: all of it, or nothing (P7).
//!
//! Each writes its own number into the cell. Where its answer was lost, the cell says whether it was
//! committed, and then both keys have a new token; where it was not, neither has.

use onceledger::{Error, Key, Ledger, Version, View};

pub const CELL: &str = "together";

/// What is known of the cell, and of a transaction whose answer was lost.
#[derive(Clone, Debug)]
pub struct Together {
    /// Numbers that the cell may hold; 0 is no cell.
    may_hold: Vec<u64>,
    doubt: Option<Doubt>,
    next: u64,
}

/// A transaction that may have been committed: its number, its keys, and their tokens before it.
#[derive(Clone, Debug)]
pub struct Doubt {
    pub number: u64,
    pub keys: [Key; 2],
    pub tokens: [Option<u64>; 2],
}

/// Why a look ended.
pub enum Ended {
    Failed(Error),
    Violation(String),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Failed(error)
    }
}

impl Together {
    pub fn new() -> Together {
        Together { may_hold: vec![0], doubt: None, next: 1 }
    }

    /// The number of the next transaction.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub fn committed(&mut self, number: u64) {
        self.may_hold = vec![number];
    }

    pub fn unknown(&mut self, doubt: Doubt) {
        self.may_hold.push(doubt.number);
        self.doubt = Some(doubt);
    }

    /// Looks at the cell, and at the keys of a transaction in doubt. Gives the cell's version.
    pub fn look(&mut self, ledger: &Ledger) -> Result<Option<Version>, Ended> {
        let cell = ledger.cell(CELL)?;
        let text = cell.as_ref().map_or("0", |cell| std::str::from_utf8(cell.value.body()).unwrap());
        let held: u64 = text.parse().unwrap();
        if !self.may_hold.contains(&held) {
            return Err(Ended::Violation(format!("the cell holds {held}, and may only hold {:?}", self.may_hold)));
        }
        if let Some(doubt) = &self.doubt {
            let committed = held == doubt.number;
            for (key, before) in doubt.keys.iter().zip(doubt.tokens) {
                let token = token_of(ledger, key)?;
                if (token.is_some() && token != before) != committed {
                    let what =
                        format!("the cell says that {doubt:?} was committed: {committed}; {key} has {token:?} (P7)");
                    return Err(Ended::Violation(what));
                }
            }
        }
        self.doubt = None;
        self.may_hold = vec![held];
        Ok(cell.map(|cell| cell.version))
    }
}

/// The token of a key that is in progress or uncertain.
pub fn token_of(ledger: &Ledger, key: &Key) -> Result<Option<u64>, Error> {
    Ok(match ledger.check(key)? {
        View::InProgress(holder) => Some(holder.token.get()),
        View::Uncertain(doubt) => Some(doubt.token.get()),
        _ => None,
    })
}
