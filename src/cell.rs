//! Cells: named values that change only by compare-and-set, inside a
//! [`transaction`](crate::Ledger::transaction).

use std::fmt;
use std::ops::Bound;

use crate::engine::core::Core;
use crate::engine::side::CellRecord;
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::outcome::Outcome;

/// Names one write of a cell. Every write of every cell has its own; none is used twice, not even
/// after the cell was deleted and made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub(crate) u64);

impl Version {
    /// The version as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// A version from its number, as `cell get` prints it.
    pub fn from_number(number: u64) -> Self {
        Version(number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cell: its name, its value and the version to expect when it is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cell {
    /// The name.
    pub name: String,
    /// The last write.
    pub version: Version,
    /// The value.
    pub value: Outcome,
}

/// A page of cells.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Cells {
    /// The cells, in ascending order of name.
    pub cells: Vec<Cell>,
    /// The last name of a full page: the next page begins after it. `None` where this is the end.
    pub next: Option<String>,
}

impl Cell {
    /// The longest name, in bytes.
    pub const NAME_BYTES_MAX: usize = 255;
    /// The longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 64 * 1024;
}

/// Checks a name once, where it comes in.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::bad_input("a cell's name is empty").next("name it, for example `budget/2026-11-29`"));
    }
    if name.len() > Cell::NAME_BYTES_MAX {
        let what = format!("a cell's name of {} bytes is over the limit of {}", name.len(), Cell::NAME_BYTES_MAX);
        return Err(Error::bad_input(what));
    }
    Ok(())
}

/// Checks a value once, where it comes in.
pub(crate) fn check_value(name: &str, value: &Outcome) -> Result<()> {
    let len = value.body().len();
    if len > Cell::VALUE_BYTES_MAX {
        let what = format!("the value of cell {name:?} has {len} bytes, over the limit of {}", Cell::VALUE_BYTES_MAX);
        return Err(Error::bad_input(what).next("keep large data elsewhere and its name in the cell"));
    }
    Ok(())
}

impl Ledger {
    /// A cell; `None` where there is none of that name. Does not wait for the writer.
    ///
    /// # Errors
    /// `BadInput` for a name that no cell can have; `Storage`, `Closed`, `Damaged`.
    pub fn cell(&self, name: &str) -> Result<Option<Cell>> {
        check_name(name)?;
        let core = self.core();
        core.check_call()?;
        let record = core.side.read().cells.get(name).cloned();
        match record {
            Some(record) => read(core, name, &record),
            None => Ok(None),
        }
    }

    /// Up to `limit` cells whose names begin with `prefix`, in ascending order, from the first after
    /// `after`.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn cells(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Cells> {
        let core = self.core();
        core.check_call()?;
        let start = after.filter(|after| *after > prefix).unwrap_or(prefix);
        let page: Vec<(String, CellRecord)> = {
            let side = core.side.read();
            let cells = side
                .cells
                .range::<str, _>((Bound::Included(start), Bound::Unbounded))
                .take_while(|(name, _)| name.starts_with(prefix));
            let cells = cells.filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
            cells.take(limit.saturating_add(1)).map(|(name, record)| (name.clone(), record.clone())).collect()
        };
        let mut found = Cells::default();
        for (name, record) in page.iter().take(limit) {
            found.cells.extend(read(core, name, record)?);
        }
        if page.len() > limit {
            found.next = limit.checked_sub(1).and_then(|last| page.get(last)).map(|(name, _)| name.clone());
        }
        Ok(found)
    }
}

/// Reads a cell's value. Where the cell was changed under the reader, the newer one is read.
pub(crate) fn read(core: &Core, name: &str, record: &CellRecord) -> Result<Option<Cell>> {
    let mut record = record.clone();
    let mut waited = false;
    loop {
        let version = Version(record.version);
        let value = match &record.small {
            Some(value) => Some(value.clone()),
            None => match record.value.row(record.row) {
                Some(row) => core.body(row, record.value.kind, record.value.error)?,
                None => Some(Outcome::new(record.value.kind, record.value.error, &[])),
            },
        };
        if let Some(value) = value {
            return Ok(Some(Cell { name: name.to_owned(), version, value }));
        }
        let newer = core.side.read().cells.get(name).cloned();
        match newer {
            None => return Ok(None),
            Some(newer) if newer.version != record.version => {
                record = newer;
                waited = false;
            }
            // The file may be newer than the memory, for as long as a commit is being published.
            Some(_) if !waited => {
                core.wait_for_writer();
                waited = true;
            }
            Some(_) => {
                return Err(Error::damaged(format!("the value of cell {name:?} should be in the file and is not")));
            }
        }
    }
}
