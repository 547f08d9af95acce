//! One open ledger: what its handles, grants and threads share.
//!
//! Owns the index, the line of requests, the store and the locks. The writer's thread, the one that
//! gives its answers and the keeper's belong to it and are joined when it closes. After a storage failure it lets go of
//! redb and of the file lock at once, and everything that needs storage fails until it is reopened
//! (P13).

use std::cell::Cell as ThreadCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::config::Options;
use crate::engine::anchor::{AnchorFile, Paths};
use crate::engine::clock::{Now, Times};
use crate::engine::codec::{AnchorState, LeftOutcome, LeftSettlement};
use crate::engine::event::{Reason, SessionEvent};
use crate::engine::files::{Disk, HeldLock};
use crate::engine::index::{Index, KeyDigest, SlotId};
use crate::engine::keeper::Keeper;
use crate::engine::line::{Cell, Line, Receive, Submitted, this_thread};
use crate::engine::request::{Answered, Reply, Request, Work};
use crate::engine::session::Session;
use crate::engine::side::Side;
use crate::engine::state::{Holder, Record, Seen, Stored as StoredStanding};
use crate::engine::store::Store;
use crate::engine::sync::{Arc, MutexGuard};
use crate::engine::writer::{self, Answers, Pen};
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::{Outcome, SMALL_BYTES_MAX, Stored};

/// An open ledger.
pub(crate) struct Core {
    pub disk: Arc<dyn Disk>,
    pub paths: Paths,
    pub anchor: AnchorFile,
    pub times: Times,
    pub index: Index,
    /// Cells and approvals.
    pub side: RwLock<Side>,
    pub line: Line<Request, Pen>,
    pub session: Arc<Session>,
    pub boot_id: [u8; 16],
    pub settle_delay_ms: u64,
    pub options: Options,
    store: RwLock<Option<Arc<Store>>>,
    lock: Mutex<Option<Arc<HeldLock>>>,
    status: AtomicU8,
    /// Why the ledger only reads, or closed itself.
    failure: Mutex<Option<Error>>,
    /// What the closing came to: the claims that were in progress, or what failed. Every closing after it says the same.
    ended: Mutex<Option<Result<u64>>>,
    /// This process's session in the log; 0 before its first grant. For readers.
    own: AtomicU64,
    pub sessions: RwLock<BTreeMap<u64, SessionView>>,
    cache: Mutex<BodyCache>,
    pub keeper: Keeper,
    /// To the thread that gives answers; none once the ledger closes.
    to_give: Mutex<Option<Sender<Answers>>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// A session as readers and the keeper know it.
#[derive(Clone, Debug)]
pub(crate) struct SessionView {
    pub event: SessionEvent,
    pub own: bool,
    /// What the last look found.
    pub holder: Holder,
    /// How many outcomes it had left at the last look that was acted on.
    pub left: usize,
}

#[derive(Default)]
struct BodyCache {
    order: VecDeque<(SlotId, u64, usize)>,
    bytes: usize,
}

const OPEN: u8 = 0;
const FAILED: u8 = 1;
const CLOSED: u8 = 2;
/// Opened on a full disk: what is known is served, nothing is written.
const READS: u8 = 3;

thread_local! {
    /// Set while this thread runs somebody's waker on behalf of a ledger.
    static IN_WAKER: ThreadCell<bool> = const { ThreadCell::new(false) };
}

/// What opening found, for [`Core::new`].
pub(crate) struct Parts {
    pub options: Options,
    pub paths: Paths,
    pub lock: Arc<HeldLock>,
    pub store: Store,
    pub times: Times,
    pub index: Index,
    pub side: Side,
    pub pen: Pen,
    pub session: Arc<Session>,
    pub boot_id: [u8; 16],
}

impl Core {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { options, paths, lock, store, times, index, side, pen, session, boot_id } = parts;
        let view = |row: &writer::SessionRow| SessionView {
            event: row.event.clone(),
            own: row.event.id == session.head.id,
            holder: Holder::Unknown,
            left: 0,
        };
        let sessions = pen.sessions.iter().map(|(number, row)| (*number, view(row))).collect();
        let settle_delay_ms = u64::try_from(options.settle_delay.as_millis()).unwrap_or(u64::MAX);
        Arc::new(Core {
            disk: Arc::clone(&options.disk),
            anchor: AnchorFile::new(Arc::clone(&options.disk), paths.clone()),
            own: pen.own.into(),
            line: Line::new(pen),
            paths,
            times,
            index,
            side: RwLock::new(side),
            session,
            boot_id,
            settle_delay_ms,
            options,
            store: RwLock::new(Some(Arc::new(store))),
            lock: Mutex::new(Some(lock)),
            status: OPEN.into(),
            failure: Mutex::new(None),
            ended: Mutex::new(None),
            sessions: RwLock::new(sessions),
            cache: Mutex::default(),
            keeper: Keeper::default(),
            to_give: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// Starts the threads; only the one that keeps time where nothing is written.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        if self.check_writable().is_err() {
            return self.spawn("onceledger-keeper", Core::keep_on);
        }
        let (answers, to_give) = std::sync::mpsc::channel();
        self.spawn("onceledger-answers", move |core| core.give_on(&to_give))?;
        *self.to_give.lock() = Some(answers);
        self.spawn("onceledger-writer", Core::write_on)?;
        self.spawn("onceledger-keeper", Core::keep_on)
    }

    fn spawn(self: &Arc<Self>, name: &str, run: impl FnOnce(&Core) + Send + 'static) -> Result<()> {
        let core = Arc::clone(self);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&core))) {
                // Without this thread somebody would wait for ever.
                core.fail(core.line.pen(), &writer::panicked(&*panic));
            }
        });
        let thread =
            thread.map_err(|error| Error::new(ErrorKind::Storage, format!("starting the thread {name}: {error}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Whether the ledger is open. A failure is told again to every caller.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match self.status.load(Ordering::Acquire) {
            OPEN | READS => Ok(()),
            FAILED => Err(self.failure()),
            _ => Err(Error::new(ErrorKind::Closed, "the ledger is closed").next("open it again")),
        }
    }

    /// Whether the ledger may write. On a disk that was full when it was opened it only serves what
    /// it knows.
    pub fn check_writable(&self) -> Result<()> {
        match self.status.load(Ordering::Acquire) {
            READS => Err(self.failure()),
            _ => self.check_open(),
        }
    }

    fn failure(&self) -> Error {
        let failure = self.failure.lock();
        let told = failure.as_ref().map(|error| error.again(ErrorKind::Storage));
        told.unwrap_or_else(|| Error::new(ErrorKind::Storage, "the ledger's storage failed"))
    }

    /// Serves what is known and writes nothing from now on.
    pub fn only_read(&self, error: &Error) {
        *self.failure.lock() = Some(error.again(error.kind()));
        self.status.store(READS, Ordering::Release);
        // Nobody waits for a writer that there is not.
        self.line.close();
    }

    /// What every call but `check` asks first: the right process, not inside a waker, open.
    pub fn check_call(&self) -> Result<()> {
        self.session.check_process()?;
        if IN_WAKER.get() {
            return Err(Error::new(ErrorKind::Reentrant, "a waker called the ledger on the thread that is committing")
                .next("wake a task and let the task make the call"));
        }
        self.check_open()
    }

    /// The store.
    pub fn store(&self) -> Result<Arc<Store>> {
        let store = self.store.read().clone();
        match store {
            Some(store) => Ok(store),
            None => {
                Err(self.check_open().err().unwrap_or_else(|| Error::new(ErrorKind::Closed, "the ledger is closed")))
            }
        }
    }

    /// Lets go of redb and the file lock after a storage failure. A ledger that is closed has done so.
    pub fn let_go(&self, error: &Error) {
        let mut failure = self.failure.lock();
        let failed = |status| matches!(status, OPEN | READS).then_some(FAILED);
        match self.status.fetch_update(Ordering::AcqRel, Ordering::Acquire, failed) {
            Ok(_) => *failure = Some(error.again(error.kind())),
            Err(CLOSED) => return,
            Err(_) => {}
        }
        drop(failure);
        self.line.close();
        // The store holds the lock too, until its last reader has gone.
        let store = self.store.write().take();
        drop(store);
        self.lock.lock().take();
        self.stop_keeper();
    }

    /// Passes on what a reader read. A storage failure closes the ledger from there too (P13): redb
    /// takes no write after a failed read. Never with the pen in hand.
    pub fn heard<T>(&self, read: Result<T>) -> Result<T> {
        if let Err(error) = &read
            && writer::is_fatal(error)
            && error.kind() != ErrorKind::Damaged
            && self.check_open().is_ok()
        {
            self.fail(self.line.pen(), error);
        }
        read
    }

    /// Closes the ledger after a failure, and tells everybody who is in line or waits.
    pub fn fail(&self, mut pen: MutexGuard<'_, Pen>, error: &Error) {
        let answers = writer::fail(self, &mut pen, error, ErrorKind::Storage, Vec::new());
        drop(pen);
        answers.give(self);
    }

    /// Waits for one request on this thread. A lone caller writes its own batch.
    pub fn call(&self, work: Work) -> Answered {
        self.check_call()?;
        self.call_checked(work)
    }

    /// [`call`](Core::call) for a caller who has just asked [`check_call`](Core::check_call).
    pub fn call_checked(&self, work: Work) -> Answered {
        let (cell, receive) = Cell::new();
        self.submit(Request { work, cell: Some(cell) }, true);
        self.wait_for(receive)
    }

    /// Puts a request in line and gives back where its answer arrives.
    pub fn send(&self, work: Work) -> Result<Receive<Answered>> {
        self.check_call()?;
        Ok(self.send_checked(work))
    }

    /// [`send`](Core::send) for a caller who has just asked [`check_call`](Core::check_call).
    pub fn send_checked(&self, work: Work) -> Receive<Answered> {
        let (cell, receive) = Cell::new();
        self.submit(Request { work, cell: Some(cell) }, false);
        receive
    }

    /// Puts a request in line that nobody waits for. Never waits for the disk.
    pub fn post(&self, work: Work) {
        self.submit(Request { work, cell: None }, false);
    }

    fn submit(&self, request: Request, may_lead: bool) {
        match self.line.submit(request, may_lead, |pen, requests| writer::write(self, pen, requests)) {
            Submitted::Written(answers) => answers.give(self),
            Submitted::InLine => {}
            Submitted::Refused(request) => {
                let closing = || Error::new(ErrorKind::Closed, "the ledger is closing");
                let mut answers = Answers::default();
                answers.push(request, Err(self.check_writable().err().unwrap_or_else(closing)));
                answers.give(self);
            }
        }
    }

    fn wait_for(&self, receive: Receive<Answered>) -> Answered {
        if self.options.threads {
            return receive.wait();
        }
        let waker = this_thread();
        loop {
            if let Some(answer) = receive.poll_with(&waker) {
                return answer;
            }
            // No writer's thread: whoever waits does its work.
            self.poke_due();
            self.write_line();
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Writes what is in line, on this thread.
    fn write_line(&self) {
        self.line.write_all(|pen, requests| writer::write(self, pen, requests), |answers| answers.give(self));
    }

    fn write_on(&self) {
        while self.line.wait() {
            self.line.write_all(|pen, requests| writer::write(self, pen, requests), |answers| self.hand_over(answers));
        }
    }

    /// Has many answers given by a thread of their own: waking whoever waits takes as long as deciding
    /// does, and meanwhile the next batch is on its way.
    fn hand_over(&self, answers: Answers) {
        const FEW: usize = 4;
        let left = match &*self.to_give.lock() {
            Some(to_give) if answers.len() > FEW => to_give.send(answers).err().map(|unsent| unsent.0),
            Some(_) | None => Some(answers),
        };
        if let Some(answers) = left {
            answers.give(self);
        }
    }

    fn give_on(&self, to_give: &Receiver<Answers>) {
        while let Ok(answers) = to_give.recv() {
            answers.give(self);
        }
    }

    /// Wakes a task. Its panic is caught, and a ledger call it makes is refused.
    pub fn wake(&self, waker: Waker) {
        let before = IN_WAKER.replace(true);
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        IN_WAKER.set(before);
    }

    /// Gives back grants or a probe that nobody took out of their answer. A panic in it is caught: others'
    /// answers come after this one.
    pub fn give_back(&self, answer: Answered) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.give_back_now(answer)));
    }

    fn give_back_now(&self, answer: Answered) {
        let release = |key, token| self.release(key, token, "nobody took the grant".to_owned());
        match answer {
            Ok(Reply::Granted(granted)) => release(granted.key, granted.token),
            Ok(Reply::Transacted { grants, .. }) => {
                grants.iter().for_each(|granted| release(granted.key, granted.token))
            }
            Ok(Reply::Probe { key, .. }) => self.post(Work::ProbeOver { key }),
            Ok(_) | Err(_) => {}
        }
    }

    /// Gives a grant back whose effect never began. While the ledger closes too: what is closed is the end
    /// of the line, and whoever closes it writes what is in it. After that whoever opens it next is told.
    fn release(&self, key: KeyDigest, token: u64, why: String) {
        let is = |status| self.status.load(Ordering::Acquire) == status;
        if is(OPEN) || is(CLOSED) {
            self.line.push_front(std::iter::once(Request { work: Work::Release { key, token, why }, cell: None }));
            self.line.ring_if_waiting();
        }
        if is(CLOSED) {
            self.leave_line();
        }
    }

    /// Leaves what a closed ledger still has in line, which is what was given back since, in the session's
    /// file. What cannot be left is uncertain then, which is what a doubt is for.
    fn leave_line(&self) {
        let mut rest = self.line.take();
        while !rest.is_empty() {
            for request in rest {
                if let Work::Release { key, token, why } = request.work {
                    let _ = self.session.leave(&LeftOutcome { key, token, settlement: LeftSettlement::Released(why) });
                }
            }
            rest = self.line.take();
        }
    }

    /// Has the writer look at this process's own session: it has left an outcome while the ledger is open.
    pub fn attend_own(&self) {
        let own = self.own.load(Ordering::Relaxed);
        if own != 0 && self.session.is_own_process() && self.check_open().is_ok() {
            self.post(Work::Attend { session: own });
        }
    }

    /// Marks a grant as ended without a settle: in memory at once, on disk with the next batch.
    pub fn doubt(&self, key: &KeyDigest, token: u64, reason: Reason, why: String) {
        if !self.session.is_own_process() || self.check_open().is_err() {
            return;
        }
        self.index.update(key, |record| {
            if record.token == token && record.standing == StoredStanding::InProgress {
                record.standing = StoredStanding::Uncertain(reason);
                record.form = record.form.marked();
            }
        });
        self.post(Work::Doubt { key: *key, token, reason, why });
    }

    /// Looks at a record from a reader's side: by the coarse time where that is far from every
    /// limit, by the exact one where it is near.
    #[inline]
    pub fn seen(&self, record: &Record) -> (Seen, Now) {
        const NEAR_MS: u64 = 2000;
        let coarse = self.times.coarse();
        let (limit, time) = match record.standing {
            StoredStanding::InProgress => (record.at, coarse.early),
            StoredStanding::Done | StoredStanding::Failed if coarse.late < record.body_until() => {
                (record.body_until().min(record.forgotten_at()), coarse.late)
            }
            StoredStanding::Done | StoredStanding::Failed | StoredStanding::Vacant => {
                (record.forgotten_at(), coarse.late)
            }
            StoredStanding::Uncertain(_) => (u64::MAX, 0),
        };
        // Without threads nobody else refreshes the coarse time.
        let far = self.options.threads && limit.saturating_sub(time) > NEAR_MS;
        let now = if far { coarse } else { self.times.now() };
        (record.seen(now, self.holder(record)), now)
    }

    #[inline]
    fn holder(&self, record: &Record) -> Holder {
        if record.standing != StoredStanding::InProgress || record.link == self.own.load(Ordering::Relaxed) {
            return Holder::Alive;
        }
        self.sessions.read().get(&record.link).map_or(Holder::Unknown, |view| view.holder)
    }

    /// The process id of a record's session.
    pub fn pid_of(&self, session: u64) -> Option<u32> {
        self.sessions.read().get(&session).map(|view| view.event.pid)
    }

    /// What the log says of a session.
    pub fn session_event(&self, session: u64) -> Option<SessionEvent> {
        self.sessions.read().get(&session).map(|view| view.event.clone())
    }

    /// Notes a session that the log now has.
    pub fn know_session(&self, event: &SessionEvent, own: bool) {
        if own {
            self.own.store(event.number, Ordering::Relaxed);
        }
        let view = SessionView { event: event.clone(), own, holder: Holder::Unknown, left: 0 };
        self.sessions.write().insert(event.number, view);
    }

    /// Notes what a look at a session found.
    pub fn seen_session(&self, session: u64, holder: Holder) {
        if let Some(view) = self.sessions.write().get_mut(&session) {
            view.holder = holder;
        }
    }

    /// Whether a foreign session was not yet found to be over.
    pub fn may_live(&self, session: u64) -> bool {
        self.sessions.read().get(&session).is_some_and(|view| view.holder != Holder::Gone)
    }

    /// Drops a session that nothing refers to.
    pub fn forget_session(&self, session: u64) {
        self.sessions.write().remove(&session);
    }

    /// The stored outcome of a settled record: from memory, or from the file.
    pub fn stored(&self, key: &KeyDigest, record: &Record, kept: bool) -> Result<Stored> {
        let (kind, error) = (record.form.kind(), record.form.is_error());
        let not_kept = Stored::NotKept { kind, error, bytes: u64::from(record.body_len) };
        if !kept {
            return Ok(not_kept);
        }
        let slot = self.index.look(key).filter(|(now, _)| now.link == record.link).map(|(_, slot)| slot);
        if let Some(outcome) = slot.and_then(|slot| self.index.body(slot, record)) {
            return Ok(Stored::Kept(outcome));
        }
        let Some(outcome) = self.heard(self.store()?.body(record.link, kind, error))? else {
            // Gone between the look and the read: its retention passed, and a sweep came by.
            if self.times.now().late >= record.body_until() {
                return Ok(not_kept);
            }
            return Err(Error::damaged(format!("outcome {} should be in the file and is not", record.link)));
        };
        if outcome.body().len() as u64 != u64::from(record.body_len) {
            return Err(Error::damaged(format!("outcome {} is not as long as its event says", record.link)));
        }
        if let Some(slot) = slot {
            self.cache(slot, record.link, outcome.clone());
        }
        Ok(Stored::Kept(outcome))
    }

    /// Caches a body, and takes out the oldest over the limit.
    pub fn cache(&self, slot: SlotId, row: u64, body: Outcome) {
        let (bytes, bytes_max) = (body.body().len(), self.options.cache_bytes / 2);
        if bytes > bytes_max {
            return;
        }
        self.index.cache(slot, row, body);
        if bytes <= SMALL_BYTES_MAX {
            return;
        }
        let mut cache = self.cache.lock();
        cache.order.push_back((slot, row, bytes));
        cache.bytes += bytes;
        while cache.bytes > bytes_max
            && let Some((slot, row, bytes)) = cache.order.pop_front()
        {
            cache.bytes -= bytes;
            self.index.uncache(slot, row);
        }
    }

    /// Does what the threads do, once and on this thread.
    pub fn tick(&self) {
        let ticked = catch_unwind(AssertUnwindSafe(|| {
            self.keep();
            if !self.options.threads {
                self.write_line();
            }
        }));
        if let Err(panic) = ticked {
            // As in a thread of the ledger's own.
            self.fail(self.line.pen(), &writer::panicked(&*panic));
        }
    }

    /// Closes in order: what is in line is written, the file closed, the anchor marked clean. Says how many
    /// claims of this process are in progress. Calls after the first do nothing, and say the same.
    pub fn close(&self) -> Result<u64> {
        if !self.session.is_own_process() {
            // The file is the parent's: redb would write to it, and unlock it, as it is dropped here.
            if let Some(mut store) = self.store.try_write() {
                std::mem::forget(store.take());
            }
            return self.session.check_process().map(|()| 0);
        }
        self.stop_keeper();
        self.line.close();
        // This may be the writer's thread, in a waker: nobody else would answer whom the join waits for.
        self.write_line();
        self.to_give.lock().take();
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // A panic there was a failure of its own batch; nothing is left to do for it here.
            let _ = thread.join();
        }
        self.write_line();
        let mut pen = self.line.pen();
        // What was given back since.
        let mut given = Vec::new();
        let mut rest = self.line.take();
        while !rest.is_empty() {
            given.push(writer::write(self, &mut pen, rest));
            rest = self.line.take();
        }
        let mut answers = Answers::default();
        let closing = || Error::new(ErrorKind::Closed, "the ledger was closed while somebody waited");
        for request in pen.drain_waiting() {
            answers.push(request, Err(closing()));
        }
        let ended = match self.ended.lock().get_or_insert_with(|| self.end(&pen)) {
            Ok(living) => Ok(*living),
            Err(error) => Err(error.again(ErrorKind::Storage)),
        };
        drop(pen);
        given.into_iter().chain([answers]).for_each(|answers| answers.give(self));
        ended
    }

    /// The end of the closing, once nobody is in line any more.
    fn end(&self, pen: &Pen) -> Result<u64> {
        let swap = |from| self.status.compare_exchange(from, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let living = self.own_in_progress(pen);
        if swap(OPEN) {
            // A panic of the disk is a closing that failed.
            let finished = catch_unwind(AssertUnwindSafe(|| {
                self.leave_line();
                self.finish(pen)
            }));
            self.lock.lock().take();
            finished.unwrap_or_else(|panic| Err(writer::panicked(&*panic)))?;
        } else if swap(READS) {
            // Nothing was written; what redb would like to note at the end has no space.
            let store = self.store.write().take();
            drop(store);
            self.lock.lock().take();
        } else {
            return Err(self.failure());
        }
        Ok(living)
    }

    fn finish(&self, pen: &Pen) -> Result<()> {
        let own_open = pen.sessions.get(&pen.own).map_or(0, |row| row.open);
        let in_progress = own_open > 0 && self.has_own_in_progress(pen);
        let store = self.store.write().take();
        let mut closed = Ok(());
        if let Some(store) = store {
            closed = close_store(store);
        }
        if closed.is_ok() {
            closed = self.anchor.write(&pen.anchor(AnchorState::Clean, self.boot_id));
        }
        if closed.is_ok() && !in_progress {
            closed = self.session.end();
        }
        closed
    }

    /// Whether a claim is in progress under this process's session. Uncertain ones need no holder.
    fn has_own_in_progress(&self, pen: &Pen) -> bool {
        let records = pen.open.values().filter_map(|key| self.index.get(key));
        records.into_iter().any(|record| {
            // A marked doubt is not in the log yet: there the claim is in progress.
            let open = record.standing == StoredStanding::InProgress || record.form.is_marked();
            record.link == pen.own && open
        })
    }

    /// How many claims are in progress under this process's session.
    fn own_in_progress(&self, pen: &Pen) -> u64 {
        let records = pen.open.values().filter_map(|key| self.index.get(key));
        records.filter(|record| record.link == pen.own && record.standing == StoredStanding::InProgress).count() as u64
    }

    /// Returns once what is being committed is published: a reader that met a file newer than the
    /// memory looks again after this.
    pub fn wait_for_writer(&self) {
        drop(self.line.pen());
    }

    /// The outcome's body by its row, for the history.
    pub fn body(&self, row: u64, kind: crate::outcome::Kind, error: bool) -> Result<Option<Outcome>> {
        self.heard(self.store()?.body(row, kind, error))
    }
}

/// Closes the store once the last reader has gone; they hold it for one look each.
fn close_store(mut store: Arc<Store>) -> Result<()> {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match Arc::try_unwrap(store) {
            Ok(store) => return store.close(),
            Err(shared) => store = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::new(ErrorKind::Storage, "a reader kept the file open for a second; it was not closed cleanly"))
}
