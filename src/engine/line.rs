//! The line of waiting requests, the pen that one thread at a time writes with, and the cells that
//! answers come back in.
//!
//! A request goes to the end of the line; whoever holds the pen takes the whole line and writes it
//! as one batch. A synchronous caller who finds the line empty and the pen free writes at once,
//! without a hand-over; everybody else rings the bell of the writer's thread. Batches form by
//! themselves while a sync is under way; nobody sleeps to gather one.
//!
//! Lock order: the pen before the line. No answer is given, and no waker woken, under either.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::engine::sync::{Arc, Condvar, Mutex, MutexGuard, thread};

/// Requests of type `R`, and the pen's state `P`.
pub(crate) struct Line<R, P> {
    queue: Mutex<Queue<R>>,
    bell: Condvar,
    pen: Mutex<P>,
}

struct Queue<R> {
    requests: VecDeque<R>,
    /// Once set, nothing more is taken.
    closed: bool,
}

/// No batch is larger, in requests.
pub(crate) const BATCH_REQUESTS_MAX: usize = 4096;

impl<R, P> Line<R, P> {
    pub fn new(pen: P) -> Self {
        Line {
            queue: Mutex::new(Queue { requests: VecDeque::new(), closed: false }),
            bell: Condvar::new(),
            pen: Mutex::new(pen),
        }
    }

    /// Hands a request in: written at once where the caller may lead and nobody is before it,
    /// otherwise put in line.
    pub fn submit<A>(&self, request: R, may_lead: bool, write: impl FnOnce(&mut P, Vec<R>) -> A) -> Submitted<R, A> {
        if may_lead && let Some(mut pen) = self.try_lead() {
            let answers = write(&mut pen, vec![request]);
            drop(pen);
            self.ring_if_waiting();
            return Submitted::Written(answers);
        }
        match self.push(request) {
            Ok(()) => Submitted::InLine,
            Err(request) => Submitted::Refused(request),
        }
    }

    /// Writes what is in line, on this thread, until the line is empty. `give` is called with no
    /// lock held.
    pub fn write_all<A>(&self, mut write: impl FnMut(&mut P, Vec<R>) -> A, mut give: impl FnMut(A)) {
        loop {
            let mut pen = self.pen();
            let requests = self.take();
            if requests.is_empty() {
                return;
            }
            let answers = write(&mut pen, requests);
            drop(pen);
            give(answers);
        }
    }

    /// Puts a request at the end of the line and rings. Gives it back where the line is closed.
    pub fn push(&self, request: R) -> Result<(), R> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(request);
        }
        queue.requests.push_back(request);
        let first = queue.requests.len() == 1;
        drop(queue);
        // The writer sleeps only on an empty line, so one ring for the first request is enough.
        if first {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Puts requests at the front, in their order, closed or not: they have waited before. Does not ring.
    pub fn push_front(&self, requests: impl DoubleEndedIterator<Item = R>) {
        let mut queue = self.queue.lock();
        for request in requests.rev() {
            queue.requests.push_front(request);
        }
    }

    /// The pen, where nobody holds it and nobody waits: the caller may write at once.
    pub fn try_lead(&self) -> Option<MutexGuard<'_, P>> {
        if !self.queue.lock().requests.is_empty() {
            return None;
        }
        self.pen.try_lock()
    }

    /// The pen, once it is free.
    pub fn pen(&self) -> MutexGuard<'_, P> {
        self.pen.lock()
    }

    /// The front of the line, up to the bound. To be called with the pen in hand.
    pub fn take(&self) -> Vec<R> {
        let mut queue = self.queue.lock();
        let count = queue.requests.len().min(BATCH_REQUESTS_MAX);
        queue.requests.drain(..count).collect()
    }

    /// Whether somebody waits; wakes the writer's thread if so. Whoever puts the pen down calls it.
    pub fn ring_if_waiting(&self) {
        if !self.queue.lock().requests.is_empty() && !cfg!(onceledger_canary = "lost_wake_up") {
            self.bell.notify_one();
        }
    }

    /// Sleeps until somebody waits (true) or the line is closed (false).
    pub fn wait(&self) -> bool {
        let mut queue = self.queue.lock();
        loop {
            if !queue.requests.is_empty() {
                return true;
            }
            if queue.closed {
                return false;
            }
            self.bell.wait(&mut queue);
        }
    }

    /// Takes no more requests. Those in line stay to be taken.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.bell.notify_all();
    }
}

/// What became of a request that was handed in.
pub(crate) enum Submitted<R, A> {
    /// It was written at once.
    Written(A),
    /// Whoever writes next takes it.
    InLine,
    /// The line is closed.
    Refused(R),
}

/// Where one answer arrives.
pub(crate) struct Cell<T> {
    state: Mutex<CellState<T>>,
}

enum CellState<T> {
    Waiting(Option<Waker>),
    Ready(T),
    /// Taken, or nobody is there to take it.
    Gone,
}

impl<T> Cell<T> {
    /// A cell and the one who waits for it.
    pub fn new() -> (Arc<Cell<T>>, Receive<T>) {
        let cell = Arc::new(Cell { state: Mutex::new(CellState::Waiting(None)) });
        (Arc::clone(&cell), Receive { cell })
    }

    /// Puts the answer in. Gives back what could not be delivered, or the waker to wake once no
    /// lock is held.
    pub fn fill(&self, answer: T) -> Result<Option<Waker>, T> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, CellState::Gone) {
            CellState::Waiting(waker) => {
                *state = CellState::Ready(answer);
                Ok(waker)
            }
            CellState::Gone => Err(answer),
            ready @ CellState::Ready(_) => {
                *state = ready;
                Err(answer)
            }
        }
    }

    /// Whether somebody still waits.
    pub fn is_waited_for(&self) -> bool {
        matches!(*self.state.lock(), CellState::Waiting(_))
    }
}

/// The waiting side of a [`Cell`]: a future that a thread can wait for too.
pub(crate) struct Receive<T> {
    cell: Arc<Cell<T>>,
}

impl<T> Receive<T> {
    /// Nobody waits any more. Gives back an answer that had come and was not taken.
    pub fn give_up(&self) -> Option<T> {
        let mut state = self.cell.state.lock();
        match std::mem::replace(&mut *state, CellState::Gone) {
            CellState::Ready(answer) => Some(answer),
            CellState::Waiting(_) | CellState::Gone => None,
        }
    }

    /// Waits for the answer on this thread.
    pub fn wait(&self) -> T {
        let waker = this_thread();
        loop {
            if let Some(answer) = self.poll_with(&waker) {
                return answer;
            }
            thread::park();
        }
    }

    /// The answer, or `None` where it is still to come and `waker` will be woken.
    pub fn poll_with(&self, waker: &Waker) -> Option<T> {
        let mut state = self.cell.state.lock();
        match std::mem::replace(&mut *state, CellState::Gone) {
            CellState::Ready(answer) => Some(answer),
            CellState::Waiting(old) => {
                let kept = old.filter(|old| old.will_wake(waker)).unwrap_or_else(|| waker.clone());
                *state = CellState::Waiting(Some(kept));
                None
            }
            CellState::Gone => None,
        }
    }
}

impl<T> Future for Receive<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.poll_with(context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

/// Wakes this thread out of its park.
pub(crate) fn this_thread() -> Waker {
    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    Waker::from(Arc::new(Unpark(thread::current())))
}
