//! The work: tasks on one tokio runtime of two threads, each running effects one after the other. An effect
//! here does nothing but return its outcome, so what is measured is what the ledger adds.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_effects::{EffectFailure, EffectOutcome, Runtime};
use agent_effects_sqlite::SqliteStore;
use onceledger_peers::contest::{Bench, Measure};
use onceledger_peers::peer::{AsyncPeer, Peer, Reply};
use onceledger_peers::work::{self, OUTCOME};
use onceledger_peers::{Result, drive, shelf};
use tempfile::TempDir;

/// Effects that are there to be replayed.
const REPLAYED: u64 = 512;

type Effects = Runtime<SqliteStore>;

fn tasks() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(drive::EXECUTORS).enable_all().build()?)
}

/// Runs `step` again and again on each of `count` tasks. Steps a second.
fn rate<F>(
    tasks: &tokio::runtime::Runtime,
    count: usize,
    window: Duration,
    step: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send,
{
    let started = Instant::now();
    let steps = tasks.block_on(async {
        let one = |task: u64| {
            let step = step.clone();
            async move {
                let mut steps = 0;
                while started.elapsed() < window {
                    step(task * 37 + steps).await?;
                    steps += 1;
                }
                Ok::<u64, onceledger_peers::Error>(steps)
            }
        };
        let handles: Vec<_> = (0..count as u64).map(|task| tokio::spawn(one(task))).collect();
        let mut steps = 0;
        for handle in handles {
            steps += handle.await??;
        }
        Ok::<u64, onceledger_peers::Error>(steps)
    })?;
    Ok(steps as f64 / started.elapsed().as_secs_f64())
}

/// One effect through agent-effects: without input, which is kinder to it, and without retries.
async fn effect(effects: &Effects, number: u64) -> Result<()> {
    let run = |_| async { Ok::<String, EffectFailure>(OUTCOME.to_owned()) };
    match effects.effect("refund", format!("ord_{number}")).run(run).await? {
        EffectOutcome::Committed(outcome) if outcome == OUTCOME => Ok(()),
        other => Err(format!("an effect ended as {other:?}").into()),
    }
}

struct Store {
    // Dropped in this order: connections, runtime, files.
    effects: Effects,
    tasks: tokio::runtime::Runtime,
    _dir: TempDir,
}

impl Store {
    /// Takes the whole store, so that a closure over it keeps the files too.
    fn rate<F>(
        &self,
        count: usize,
        window: Duration,
        step: impl Fn(Effects, u64) -> F + Clone + Send + 'static,
    ) -> Result<f64>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let effects = self.effects.clone();
        rate(&self.tasks, count, window, move |number| step(effects.clone(), number))
    }
}

fn store(bench: &Bench) -> Result<Store> {
    let dir = TempDir::with_prefix_in("effects-", bench.dir())?;
    let tasks = tasks()?;
    let effects = Runtime::new(tasks.block_on(SqliteStore::open(dir.path().join("effects.db")))?);
    Ok(Store { effects, tasks, _dir: dir })
}

/// First runs through agent-effects.
pub fn effects_first<const TASKS: usize>(bench: &mut Bench) -> Result<Measure> {
    let (store, window) = (store(bench)?, bench.window());
    Ok(Box::new(move || store.rate(TASKS, window, |effects, _| async move { effect(&effects, work::fresh()).await })))
}

/// Replays through agent-effects.
pub fn effects_replay<const TASKS: usize>(bench: &mut Bench) -> Result<Measure> {
    let (store, window) = (store(bench)?, bench.window());
    store.tasks.block_on(async {
        for number in 0..REPLAYED {
            effect(&store.effects, number).await?;
        }
        Ok::<(), onceledger_peers::Error>(())
    })?;
    Ok(Box::new(move || {
        store.rate(TASKS, window, |effects, step| async move { effect(&effects, step % REPLAYED).await })
    }))
}

/// First runs through the subject: claim, effect, settle.
pub fn ours_first<P: AsyncPeer, const TASKS: usize>(bench: &mut Bench) -> Result<Measure> {
    let kept = Arc::new(shelf::fresh::<P>(bench.dir(), 0)?);
    let (tasks, window) = (tasks()?, bench.window());
    Ok(Box::new(move || {
        let kept = Arc::clone(&kept);
        rate(&tasks, TASKS, window, move |_| {
            let kept = Arc::clone(&kept);
            async move {
                let grant = kept.store.claim_async(P::key(work::fresh())).await?.granted()?;
                kept.store.settle_async(grant, OUTCOME).await
            }
        })
    }))
}

/// Replays through the subject: a claim that is answered with the stored outcome.
pub fn ours_replay<P: AsyncPeer, const TASKS: usize>(bench: &mut Bench) -> Result<Measure> {
    let kept = Arc::new(shelf::fresh::<P>(bench.dir(), REPLAYED)?);
    let (tasks, window) = (tasks()?, bench.window());
    Ok(Box::new(move || {
        let kept = Arc::clone(&kept);
        rate(&tasks, TASKS, window, move |step| {
            let kept = Arc::clone(&kept);
            async move { replay(&kept.store, step % REPLAYED).await }
        })
    }))
}

async fn replay<P: Peer + AsyncPeer>(peer: &P, number: u64) -> Result<()> {
    match peer.claim_async(P::key(number)).await? {
        Reply::Done(bytes) if bytes == OUTCOME.len() => Ok(()),
        Reply::Done(bytes) => Err(format!("a replay of {bytes} bytes").into()),
        Reply::Granted(_) | Reply::Held => Err("a done claim was not replayed".into()),
    }
}
