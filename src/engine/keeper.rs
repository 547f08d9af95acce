//! What time brings: waits that are over, foreign holders that end, the anchor of the last commits, what
//! is due. One thread of the open ledger does it, or whoever calls `tick`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::core::{Core, SessionView};
use crate::engine::expiry::{self, STRETCH_ROWS};
use crate::engine::index::KeyDigest;
use crate::engine::request::Work;
use crate::engine::session;
use crate::engine::state::Holder;
use crate::engine::writer::{self, Pen};
use crate::error::Result;

/// So many keys a sweep of the keeper's may forget, and so many rows clean, where one caller at most is there.
const KEYS_ALONE: usize = 256;
/// And where there are more, beside what goes by their number: they wait for it.
const KEYS_AT_LEAST: usize = 64;

/// When to look again, and how to end.
#[derive(Default)]
pub(crate) struct Keeper {
    alarms: Mutex<Alarms>,
    bell: Condvar,
    /// Set while a sweep of the keeper's is in line.
    sweeping: AtomicBool,
}

impl Keeper {
    /// Notes that a sweep was made.
    pub fn swept(&self) {
        self.sweeping.store(false, Ordering::Release);
    }
}

#[derive(Default)]
struct Alarms {
    heap: BinaryHeap<Reverse<(u64, KeyDigest)>>,
    /// The earliest alarm of each key. A later one is set again when that one has gone off.
    next: HashMap<KeyDigest, u64>,
    stop: bool,
}

impl Core {
    /// Looks again at a key once the boot-time clock says so.
    pub fn wake_later(&self, at_ms: u64, key: KeyDigest) {
        let mut alarms = self.keeper.alarms.lock();
        if alarms.next.get(&key).is_some_and(|next| *next <= at_ms) {
            return;
        }
        alarms.next.insert(key, at_ms);
        alarms.heap.push(Reverse((at_ms, key)));
        drop(alarms);
        self.keeper.bell.notify_one();
    }

    fn due_alarms(&self, now_ms: u64) -> Vec<KeyDigest> {
        let mut alarms = self.keeper.alarms.lock();
        let mut due = Vec::new();
        while let Some(Reverse((at, key))) = alarms.heap.peek().copied()
            && at <= now_ms
        {
            alarms.heap.pop();
            if alarms.next.get(&key) == Some(&at) {
                alarms.next.remove(&key);
            }
            due.push(key);
        }
        due
    }

    /// Keeps time until the ledger closes.
    pub fn keep_on(&self) {
        const EVERY: Duration = Duration::from_secs(1);
        loop {
            let busy = self.keep();
            let mut alarms = self.keeper.alarms.lock();
            if alarms.stop {
                return;
            }
            let now_ms = self.times.boot_ms();
            let next = alarms.heap.peek().map(|Reverse((at, _))| Duration::from_millis(at.saturating_sub(now_ms)));
            let pause = if busy { Duration::from_millis(2) } else { next.unwrap_or(EVERY).min(EVERY) };
            if !pause.is_zero() {
                self.keeper.bell.wait_for(&mut alarms, pause);
            }
            if alarms.stop {
                return;
            }
        }
    }

    /// Wakes those whose wait is over.
    pub fn poke_due(&self) {
        for key in self.due_alarms(self.times.boot_ms()) {
            self.post(Work::Poke { key });
        }
    }

    /// Does what time brings: refreshes the coarse clock, wakes those whose wait is over, looks at
    /// foreign holders, keeps the anchor fresh, forgets what is due. True where more is due.
    pub fn keep(&self) -> bool {
        if self.check_open().is_err() {
            return false;
        }
        if self.check_writable().is_err() {
            self.times.now();
            return false;
        }
        let now = self.times.now();
        self.poke_due();
        self.look_at_sessions();
        let mut pen = self.line.pen();
        if let Err(error) = self.refresh_anchor(&mut pen) {
            self.fail(pen, &error);
            return false;
        }
        let busy = pen.due.is_due(now) || expiry::is_dirty(pen.garbage, pen.meta.count);
        // As many keys and rows as the callers add, and some: a large batch carries a large sweep, and a few
        // callers do not wait for one. A pair of requests adds a key and two or three rows.
        let rows = if pen.requests <= 1 { KEYS_ALONE } else { (KEYS_AT_LEAST + 2 * pen.requests).min(STRETCH_ROWS) };
        drop(pen);
        // Never waited for: the thread that would answer may be waiting for this one to end.
        if busy && !self.keeper.sweeping.swap(true, Ordering::AcqRel) {
            self.post(Work::Sweep { limit: rows as u64, rows });
        }
        busy
    }

    /// Writes the anchor where commits have left it behind for a second.
    fn refresh_anchor(&self, pen: &mut Pen) -> Result<()> {
        if self.check_open().is_err() {
            // Closed while the pen was waited for, which is no failure.
            return Ok(());
        }
        let now_ms = self.times.boot_ms();
        let fresh = now_ms.saturating_sub(pen.anchored_ms) < writer::ANCHOR_EVERY_MS && now_ms >= pen.anchored_ms;
        if fresh || pen.meta.next_sequence == pen.anchored.next_sequence {
            return Ok(());
        }
        writer::write_anchor(self, pen, now_ms)
    }

    /// Looks at every foreign session that lived at the last look. Where one has ended or left an
    /// outcome, the writer is told.
    fn look_at_sessions(&self) {
        let views: Vec<(u64, SessionView)> = {
            let sessions = self.sessions.read();
            let foreign = sessions.iter().filter(|(_, view)| !view.own && view.holder != Holder::Gone);
            foreign.map(|(number, view)| (*number, view.clone())).collect()
        };
        for (number, view) in views {
            let event = &view.event;
            // A look that fails says nothing: the holder counts as it did.
            let Ok(sight) = session::look(&*self.disk, &self.paths.sessions, &event.id, &event.boot_id, &self.boot_id)
            else {
                continue;
            };
            let left = sight.left.len();
            if let Some(view) = self.sessions.write().get_mut(&number) {
                view.left = left;
                // The writer records the end before anybody is told of it.
                view.holder = if sight.holder == Holder::Gone { view.holder } else { sight.holder };
            }
            if sight.holder == Holder::Gone || left > view.left {
                self.post(Work::Attend { session: number });
            }
        }
    }

    /// Ends the keeper's thread.
    pub fn stop_keeper(&self) {
        self.keeper.alarms.lock().stop = true;
        self.keeper.bell.notify_all();
    }
}
