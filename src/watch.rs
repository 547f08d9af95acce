//! Waiting for a holder in another process while the ledger is closed.

use std::fmt;
use std::path::PathBuf;

use crate::claim::InProgress;
use crate::engine::event::SessionEvent;
use crate::engine::files::Disk;
use crate::engine::session;
use crate::engine::sync::Arc;
use crate::error::Result;
use crate::ledger::Ledger;

/// Watches the session of a claim's holder without the ledger's file lock, so that waiting keeps
/// nobody from the file.
pub struct Watch {
    disk: Arc<dyn Disk>,
    sessions: PathBuf,
    event: SessionEvent,
    boot_id: [u8; 16],
    key: [u8; 32],
    token: u64,
}

impl Ledger {
    /// A watch on the holder of a claim that is in progress. `None` where the claim has moved on.
    pub fn watch(&self, holder: &InProgress) -> Option<Watch> {
        let core = self.core();
        let key = *holder.key.digest();
        let record = core.index.get(&key).filter(|record| record.token == holder.token.get())?;
        let event = core.session_event(record.link)?;
        Some(Watch {
            disk: Arc::clone(&core.disk),
            sessions: core.paths.sessions.clone(),
            event,
            boot_id: core.boot_id,
            key,
            token: record.token,
        })
    }
}

impl Watch {
    /// Whether opening the ledger may tell more: the holder's session is over, or it carries an
    /// outcome of this claim. A holder that settles through its own open handle is not seen here.
    ///
    /// # Errors
    /// `Storage` where the session's file cannot be read. Nothing is written.
    pub fn has_news(&self) -> Result<bool> {
        let event = &self.event;
        let sight = session::look(&*self.disk, &self.sessions, &event.id, &event.boot_id, &self.boot_id)?;
        Ok(session::has_news(&sight, &self.key, self.token))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch(token {}, process {})", self.token, self.event.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::files::RealDisk;
    use crate::{Claim, Claimed, Key, Options, Scope, Settlement};

    /// Another disk object is another session, as another process is.
    fn options() -> Options {
        let mut options = Options::new().threads(false);
        options.disk = Arc::new(RealDisk);
        options
    }

    #[test]
    fn a_watch_sees_a_left_outcome_and_an_end_without_the_ledgers_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.redb");
        let claim = |part: &str| Claim::unguarded(Key::action(&Scope::global(), "watch", [part]).unwrap());
        let ledger = options().create(&path).unwrap();
        let [left, ended] =
            ["left", "ended"].map(|part| ledger.claim(&claim(part)).unwrap().granted().unwrap().into_ticket());
        assert_eq!(ledger.close().unwrap(), 2);

        let ledger = options().open(&path).unwrap();
        let watch = |part: &str| match ledger.claim(&claim(part)).unwrap() {
            Claimed::InProgress(holder) => ledger.watch(&holder).unwrap(),
            other => panic!("{other:?}"),
        };
        let watches = [watch("left"), watch("ended")];
        ledger.close().unwrap();
        let news = || watches.each_ref().map(|watch| watch.has_news().unwrap());
        assert_eq!(news(), [false, false]);
        left.leave(Settlement::done("sent")).unwrap();
        assert_eq!(news(), [true, false]);
        drop((left, ended));
        assert_eq!(news(), [true, true]);

        let ledger = options().open(&path).unwrap();
        assert!(matches!(ledger.claim(&claim("left")).unwrap(), Claimed::AlreadyDone(_)));
        assert!(matches!(ledger.claim(&claim("ended")).unwrap(), Claimed::Uncertain(_)));
    }
}
