//! Ledgers on every kind of disk, under a clock that moves only when told to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Disk, FakeClock, FaultDisk, MemoryDisk, RealDisk};
use onceledger::*;
use serde_json::json;

/// A place where a ledger lies, and can be opened again.
pub struct Place {
    pub name: &'static str,
    pub clock: FakeClock,
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
    threads: bool,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    pub fn memory() -> Self {
        Place::new("memory", Arc::new(MemoryDisk::default()), PathBuf::from("/memory"), None)
    }

    pub fn real() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.redb");
        Place::new("real file", Arc::new(RealDisk), path, Some(folder))
    }

    pub fn faulty() -> Self {
        Place::on(FaultDisk::new(1))
    }

    /// A faulty disk that the caller keeps a handle of.
    pub fn on(disk: FaultDisk) -> Self {
        Place::new("faulty disk", Arc::new(disk), PathBuf::from("/ledger.redb"), None)
    }

    /// One of each.
    pub fn all() -> [Place; 3] {
        [Place::memory(), Place::real(), Place::faulty()]
    }

    fn new(name: &'static str, disk: Arc<dyn Disk>, path: PathBuf, folder: Option<tempfile::TempDir>) -> Self {
        Place { name, clock: FakeClock::new(), disk, path, threads: false, _folder: folder }
    }

    /// With the ledger's own threads.
    pub fn threaded(mut self) -> Self {
        self.threads = true;
        self
    }

    pub fn options(&self) -> Options {
        let clock = Arc::new(self.clock.clone());
        Options::new().disk(Arc::clone(&self.disk)).clock(clock).threads(self.threads)
    }

    #[track_caller]
    pub fn open(&self) -> Ledger {
        self.options().open_or_create(&self.path).unwrap()
    }

    #[track_caller]
    pub fn reopen(&self, ledger: Ledger) -> Ledger {
        ledger.close().unwrap();
        self.open()
    }
}

pub fn key(part: &str) -> Key {
    Key::action(&Scope::new("test").unwrap(), "refund", [part]).unwrap()
}

/// A claim whose every argument is guarded.
pub fn claim(part: &str) -> Claim {
    Claim::new(key(part), &json!({"amount": 79})).unwrap()
}

/// A claim of the same key and fingerprint whatever the note says: it is free text.
pub fn noted(order: &str, note: &str) -> Claim {
    let args = json!({"order": order, "amount": 79, "note": note}).to_string();
    let args = canonical::Value::parse(&args).unwrap();
    let selection = Selection::tool(&args, &["/order"], &["/amount"]).unwrap();
    Claim::selected(key(order), &selection)
}

#[track_caller]
pub fn asked(ledger: &Ledger, claim: &Claim) -> ApprovalId {
    ledger.request(&ApprovalRequest::new(claim, "please").by("bot")).unwrap().id
}

#[track_caller]
pub fn approved(ledger: &Ledger, claim: &Claim) -> ApprovalId {
    let id = asked(ledger, claim);
    assert!(matches!(ledger.approve(id, "ana").unwrap(), Decision::Applied(_)));
    id
}

#[track_caller]
pub fn state(ledger: &Ledger, id: ApprovalId) -> ApprovalState {
    ledger.approval(id).unwrap().unwrap().state
}

#[track_caller]
pub fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
pub fn committed(transaction: Transaction) -> Committed {
    match transaction.commit().unwrap() {
        Transacted::Committed(committed) => committed,
        Transacted::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

#[track_caller]
pub fn refused(transaction: Transaction) -> Vec<Refusal> {
    match transaction.commit().unwrap() {
        Transacted::Refused(refused) => refused,
        Transacted::Committed(committed) => panic!("committed: {committed:?}"),
    }
}

/// Writes a cell whatever stands there, and gives its new version.
#[track_caller]
pub fn put(ledger: &Ledger, name: &str, value: &str) -> Version {
    let transaction = ledger.transaction();
    let transaction = match ledger.cell(name).unwrap() {
        Some(cell) => transaction.expect_cell(name, cell.version),
        None => transaction.expect_absent(name),
    };
    committed(transaction.set_cell(name, value)).versions[0].1.unwrap()
}

/// What the ledger's log position is: a call that writes nothing leaves it.
#[track_caller]
pub fn position(ledger: &Ledger) -> (u64, u64) {
    let stats = ledger.stats().unwrap();
    (stats.next_sequence, stats.rows)
}

/// Makes rows that nothing needs, until the log is dirty enough to be cleaned, and cleans it: what was
/// there before was written again.
#[track_caller]
pub fn move_everything(ledger: &Ledger) {
    const FILLERS: usize = 800;
    let name = |number: usize| format!("~filler/{number:04}");
    let begin = ledger.stats().unwrap().rows;
    let set = |tx: Transaction, number| tx.expect_absent(name(number)).set_cell(name(number), "x");
    let written = committed((0..FILLERS).fold(ledger.transaction(), set));
    let delete = |tx: Transaction, (name, version): (String, Option<Version>)| {
        tx.expect_cell(&name, version.unwrap()).delete_cell(&name)
    };
    let _ = committed(written.versions.into_iter().fold(ledger.transaction(), delete));
    let mut rows = 0;
    for _ in 0..100 {
        let swept = ledger.sweep(4096).unwrap();
        rows += swept.rows;
        if swept.rows == 0 {
            break;
        }
    }
    // Oldest first: what stood there at the beginning is at the new end.
    assert!(rows >= begin, "{rows} rows were cleaned, {begin} were there");
    ledger.verify().unwrap();
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
