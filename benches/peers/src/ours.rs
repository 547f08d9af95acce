//! onceledger, through its public API only.
//!
//! Written against section 9 of the design; not compiled until the feature `ours` is on.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use onceledger::{Claim, Config, Key, Ledger, Outcome, Scope};

use crate::peer::{AsyncPeer, Peer, Reader, Reply, Tally};
use crate::subject::Subject;
use crate::{Result, drive};

static SCOPE: LazyLock<Scope> = LazyLock::new(|| Scope::new("bench/peers").expect("a plain scope"));

/// A ledger.
pub struct Ours(Ledger);

fn path_in(dir: &Path) -> PathBuf {
    dir.join("ledger.redb")
}

fn reply(reply: onceledger::Reply) -> Reply<onceledger::Grant> {
    match reply {
        onceledger::Reply::Granted(grant) => Reply::Granted(grant),
        onceledger::Reply::AlreadyDone(stored) => {
            Reply::Done(stored.outcome().map_or(0, |o| o.body().len()))
        }
        _ => Reply::Held,
    }
}

impl Peer for Ours {
    const NAME: &'static str = "onceledger";
    const COMMITS: &'static str = "onceledger, two-phase: two syncs a commit, of everything queued";
    type Key = Key;
    type Grant = onceledger::Grant;
    type Reader = OursReader;

    fn key(number: u64) -> Key {
        Key::action(&SCOPE, "refund", [number.to_string()])
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        let ours = Ours(Ledger::create(path_in(dir))?);
        drive::fill(&ours, 0..done, crate::work::OUTCOME)?;
        Ok(ours)
    }

    fn claim(&self, key: &Key) -> Result<Reply<onceledger::Grant>> {
        Ok(reply(self.0.claim(&Claim::unguarded(*key))?))
    }

    fn settle(&self, grant: onceledger::Grant, outcome: &'static str) -> Result<()> {
        Ok(grant.complete(Outcome::json(outcome)).map(drop)?)
    }

    fn reader(&self) -> Result<OursReader> {
        Ok(OursReader(self.0.clone()))
    }
}

impl AsyncPeer for Ours {
    async fn claim_async(&self, key: Key) -> Result<Reply<onceledger::Grant>> {
        Ok(reply(self.0.claim_async(&Claim::unguarded(key)).await?))
    }

    async fn settle_async(&self, grant: onceledger::Grant, outcome: &'static str) -> Result<()> {
        Ok(grant
            .complete_async(Outcome::json(outcome))
            .await
            .map(drop)?)
    }
}

impl Subject for Ours {
    const STANDS_IN: bool = false;

    fn open(dir: &Path) -> Result<Self> {
        Ok(Ours(Ledger::open(path_in(dir))?))
    }

    fn close(self) -> Result<()> {
        Ok(self.0.close()?)
    }

    fn create_keeping(dir: &Path, keep: Duration) -> Result<Self> {
        let config = Config {
            keep_body: keep,
            keep_key: keep,
            ..Config::default()
        };
        Ok(Ours(Ledger::create_with(path_in(dir), config)?))
    }

    fn key_of_arguments(arguments: &str) -> Result<Key> {
        Ok(Key::arguments(&SCOPE, "refund", arguments)?)
    }
}

/// Checks the live ledger: every look-up sees the latest state.
pub struct OursReader(Ledger);

impl Reader<Key> for OursReader {
    fn check(&mut self, keys: &[Key]) -> Result<Tally> {
        let mut tally = Tally::default();
        for key in keys {
            if let Some(outcome) = self.0.check(key)?.outcome() {
                tally.add(outcome.body());
            }
        }
        Ok(tally)
    }
}
