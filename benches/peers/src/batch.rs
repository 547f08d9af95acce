//! A writer thread that makes one durable commit of everything queued: the best batch of every peer.
//!
//! Callers wait on a oneshot, as futures or blocked, so the hand-over costs each peer the same. While a
//! commit is under way the next batch gathers; before a commit the writer yields for as long as the
//! queue grows by that, so that the callers the last commit woke are in the next one.

use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use futures_channel::oneshot;
use futures_executor::block_on;

use crate::Result;
use crate::peer::{AsyncPeer, Peer, Reader, Reply};
use crate::work::{self, Digest};

/// One request to the writer.
pub enum Op {
    /// Insert, if the key is vacant.
    Claim { key: Digest },
    /// Store the outcome, if the token is the one that holds the key.
    Settle { key: Digest, token: u64, outcome: &'static str },
}

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Granted under this token.
    Granted(u64),
    /// Done before, with an outcome of so many bytes.
    Done(usize),
    /// In progress under another token.
    Held,
    /// Settled.
    Settled,
}

/// What the writer thread owns: a store that commits a batch.
pub trait Store: Send + Sized + 'static {
    /// As the table prints it.
    const NAME: &'static str;
    /// What is on disk when a commit returns.
    const COMMITS: &'static str;
    /// What readers are made from.
    type Source: Clone + Send + Sync + 'static;
    /// One thread's way to look claims up.
    type Reader: Reader<Digest>;

    /// A new store in an empty directory with these claims done; they come sorted.
    fn create(dir: &Path, done: &[Digest]) -> Result<Self>;
    /// What readers are made from.
    fn source(&self) -> Self::Source;
    /// A new reader.
    fn reader(source: &Self::Source) -> Result<Self::Reader>;
    /// Applies the batch in order, pushes one answer each, and returns once all of it is durable.
    fn commit(&mut self, batch: &[Op], answers: &mut Vec<Answer>) -> Result<()>;
}

/// A store behind a writer thread that takes at most `MAX` requests into one commit.
pub struct Batched<S: Store, const MAX: usize> {
    queue: Arc<Queue>,
    source: S::Source,
    writer: Option<JoinHandle<()>>,
}

/// The right to settle.
pub struct Grant {
    key: Digest,
    token: u64,
}

struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<(Op, oneshot::Sender<Answer>)>,
    closed: bool,
    failure: Option<String>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, op: Op) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.failure.is_none() {
            waiting.requests.push_back((op, sender));
        }
        let first = waiting.requests.len() == 1;
        drop(waiting);
        if first {
            self.filled.notify_one();
        }
        receiver
    }

    /// Waits for requests and moves at most `max` of them out. False once closed and empty.
    fn take(&self, max: usize, ops: &mut Vec<Op>, senders: &mut Vec<oneshot::Sender<Answer>>) -> bool {
        let mut waiting = self.lock();
        while waiting.requests.is_empty() {
            if waiting.closed {
                return false;
            }
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        loop {
            let before = waiting.requests.len();
            if before >= max {
                break;
            }
            drop(waiting);
            thread::yield_now();
            waiting = self.lock();
            if waiting.requests.len() == before {
                break;
            }
        }
        let taken = waiting.requests.len().min(max);
        for (op, sender) in waiting.requests.drain(..taken) {
            ops.push(op);
            senders.push(sender);
        }
        true
    }

    fn fail(&self, error: String) {
        let mut waiting = self.lock();
        waiting.failure = Some(error);
        waiting.requests.clear();
    }
}

fn write<S: Store>(mut store: S, queue: &Queue, max: usize) {
    let (mut ops, mut senders, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    while queue.take(max, &mut ops, &mut senders) {
        if let Err(error) = store.commit(&ops, &mut answers) {
            queue.fail(error.to_string());
            return;
        }
        assert_eq!(answers.len(), senders.len(), "one answer each");
        for (sender, answer) in senders.drain(..).zip(answers.drain(..)) {
            // A caller that no longer listens is none of the writer's business.
            let _ = sender.send(answer);
        }
        ops.clear();
    }
}

impl<S: Store, const MAX: usize> Batched<S, MAX> {
    fn request(&self, op: Op) -> impl Future<Output = Result<Answer>> + Send + use<'_, S, MAX> {
        let receiver = self.queue.push(op);
        async move {
            receiver.await.map_err(|_| {
                let failure = self.queue.lock().failure.clone();
                failure.unwrap_or_else(|| "the writer is gone".into()).into()
            })
        }
    }
}

impl<S: Store, const MAX: usize> Peer for Batched<S, MAX> {
    const NAME: &'static str = S::NAME;
    const COMMITS: &'static str = S::COMMITS;
    type Key = Digest;
    type Grant = Grant;
    type Reader = S::Reader;

    fn key(number: u64) -> Digest {
        work::digest(number)
    }

    fn create(dir: &Path, done: u64) -> Result<Self> {
        let store = S::create(dir, &work::sorted_digests(done))?;
        let source = store.source();
        let queue = Arc::new(Queue { waiting: Mutex::default(), filled: Condvar::new() });
        let writer = thread::Builder::new().name("writer".into()).spawn({
            let queue = Arc::clone(&queue);
            move || write(store, &queue, MAX)
        })?;
        Ok(Batched { queue, source, writer: Some(writer) })
    }

    fn claim(&self, key: &Digest) -> Result<Reply<Grant>> {
        block_on(self.claim_async(*key))
    }

    fn settle(&self, grant: Grant, outcome: &'static str) -> Result<()> {
        block_on(self.settle_async(grant, outcome))
    }

    fn reader(&self) -> Result<S::Reader> {
        S::reader(&self.source)
    }
}

impl<S: Store, const MAX: usize> AsyncPeer for Batched<S, MAX> {
    async fn claim_async(&self, key: Digest) -> Result<Reply<Grant>> {
        match self.request(Op::Claim { key }).await? {
            Answer::Granted(token) => Ok(Reply::Granted(Grant { key, token })),
            Answer::Done(bytes) => Ok(Reply::Done(bytes)),
            Answer::Held => Ok(Reply::Held),
            Answer::Settled => Err("a claim was answered as a settle".into()),
        }
    }

    async fn settle_async(&self, grant: Grant, outcome: &'static str) -> Result<()> {
        match self.request(Op::Settle { key: grant.key, token: grant.token, outcome }).await? {
            Answer::Settled => Ok(()),
            answer => Err(format!("a settle was answered {answer:?}").into()),
        }
    }
}

impl<S: Store, const MAX: usize> Drop for Batched<S, MAX> {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.filled.notify_all();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has already printed why.
            let _ = writer.join();
        }
    }
}
