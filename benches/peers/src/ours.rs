//! onceledger, through its public API only.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use onceledger::canonical::Value;
use onceledger::{Claim, Claimed, Key, Ledger, Options, Outcome, Scope, Selection, Settlement, View};

use crate::peer::{AsyncPeer, Peer, Reader, Reply, Tally};
use crate::subject::Subject;
use crate::{Result, drive};

static SCOPE: LazyLock<Scope> = LazyLock::new(|| Scope::new("bench/peers").expect("a plain scope"));

/// A ledger.
pub struct Ours(Ledger);

fn path_in(dir: &Path) -> PathBuf {
    dir.join("ledger.redb")
}

/// A cache that holds every outcome of the largest population, as the peers' caches do.
fn options() -> Options {
    Options::new().cache_bytes(1 << 30)
}

fn reply(claimed: Claimed) -> Reply<onceledger::Grant> {
    match claimed {
        Claimed::Granted(grant) => Reply::Granted(grant),
        Claimed::AlreadyDone(stored) => Reply::Done(stored.outcome().map_or(0, |o| o.body().len())),
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
        Key::action(&SCOPE, "refund", [number.to_string()]).expect("a plain part")
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        let ours = Ours(options().create(path_in(dir))?);
        drive::fill(&ours, 0..done, crate::work::OUTCOME)?;
        Ok(ours)
    }

    fn claim(&self, key: &Key) -> Result<Reply<onceledger::Grant>> {
        Ok(reply(self.0.claim(&Claim::unguarded(key.clone()))?))
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
        Ok(grant.settle_async(Settlement::done(Outcome::json(outcome))).await.map(drop)?)
    }
}

impl Subject for Ours {
    const STANDS_IN: bool = false;

    fn open(dir: &Path) -> Result<Self> {
        Ok(Ours(options().open(path_in(dir))?))
    }

    fn close(self) -> Result<()> {
        Ok(self.0.close().map(drop)?)
    }

    fn create_lean(dir: &Path) -> Result<Self> {
        Ok(Ours(options().page_cache_bytes(1 << 20).create(path_in(dir))?))
    }

    fn create_keeping(dir: &Path, keep: Duration) -> Result<Self> {
        Ok(Ours(options().keep(keep).remember(keep).create(path_in(dir))?))
    }

    fn key_of_arguments(arguments: &str) -> Result<Key> {
        let none: [&str; 0] = [];
        let selection = Selection::tool(&Value::parse(arguments)?, &none, &none)?;
        Ok(Key::tool(&SCOPE, "refund", &selection)?)
    }
}

/// Checks the live ledger: every look-up sees the latest state.
pub struct OursReader(Ledger);

impl Reader<Key> for OursReader {
    fn check(&mut self, keys: &[Key]) -> Result<Tally> {
        let mut tally = Tally::default();
        for key in keys {
            if let View::Done(stored) = self.0.check(key)?
                && let Some(outcome) = stored.outcome()
            {
                tally.add(outcome.body());
            }
        }
        Ok(tally)
    }
}
