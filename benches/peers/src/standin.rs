//! Raw redb in the subject's place, for as long as onceledger's API is not there. It shows that every row
//! can be measured; its ratios say nothing. It forgets no key, so the row on expiry is not measured.

use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::Result;
use crate::batch::Grant;
use crate::peer::{AsyncPeer, Peer, Reply};
use crate::peers::raw_redb::{RedbBatch, RedbReader};
use crate::subject::Subject;
use crate::work::Digest;

/// The stand-in.
pub struct StandIn(RedbBatch);

impl Peer for StandIn {
    const NAME: &'static str = "STAND-IN (raw redb)";
    const COMMITS: &'static str = RedbBatch::COMMITS;
    type Key = Digest;
    type Grant = Grant;
    type Reader = RedbReader;

    fn key(number: u64) -> Digest {
        RedbBatch::key(number)
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        Ok(StandIn(RedbBatch::create(dir, done)?))
    }

    fn claim(&self, key: &Digest) -> Result<Reply<Grant>> {
        self.0.claim(key)
    }

    fn settle(&self, grant: Grant, outcome: &'static str) -> Result<()> {
        self.0.settle(grant, outcome)
    }

    fn reader(&self) -> Result<RedbReader> {
        self.0.reader()
    }
}

impl AsyncPeer for StandIn {
    async fn claim_async(&self, key: Digest) -> Result<Reply<Grant>> {
        self.0.claim_async(key).await
    }

    async fn settle_async(&self, grant: Grant, outcome: &'static str) -> Result<()> {
        self.0.settle_async(grant, outcome).await
    }
}

impl Subject for StandIn {
    const STANDS_IN: bool = true;

    fn open(dir: &Path) -> Result<Self> {
        // An empty load opens the file that is there.
        Self::create(dir, 0)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }

    fn create_lean(dir: &Path) -> Result<Self> {
        Self::create(dir, 0)
    }

    fn create_keeping(_: &Path, _: Duration) -> Result<Self> {
        Err("the stand-in forgets no key".into())
    }

    fn key_of_arguments(arguments: &str) -> Result<Digest> {
        Ok(Sha256::digest(arguments.as_bytes()).into())
    }
}
