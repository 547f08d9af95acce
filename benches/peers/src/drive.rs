//! Callers and readers: the loops that are measured.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use futures_executor::block_on;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::Result;
use crate::peer::{AsyncPeer, Peer, Reader};
use crate::system::{process_cpu, thread_cpu};
use crate::work::{self, CHUNK, OUTCOME};

/// Threads that poll the futures of [`pairs_by_futures`].
pub const EXECUTORS: usize = 2;

/// Claims and settles a fresh key again and again on each of `callers` threads. Pairs a second.
pub fn pairs_by_threads<P: Peer>(peer: &P, callers: usize, window: Duration) -> Result<f64> {
    let started = Instant::now();
    let one = || -> Result<u64> {
        let mut pairs = 0;
        while started.elapsed() < window {
            let grant = peer.claim(&P::key(work::fresh()))?.granted()?;
            peer.settle(grant, OUTCOME)?;
            pairs += 1;
        }
        Ok(pairs)
    };
    let pairs = thread::scope(|scope| {
        let handles: Vec<_> = (0..callers).map(|_| scope.spawn(one)).collect();
        handles.into_iter().map(join).sum::<Result<u64>>()
    })?;
    Ok(pairs as f64 / started.elapsed().as_secs_f64())
}

/// The same with `waiting` futures in flight, polled by [`EXECUTORS`] threads.
pub fn pairs_by_futures<P: AsyncPeer>(peer: &P, waiting: usize, window: Duration) -> Result<f64> {
    let started = Instant::now();
    let pairs = AtomicU64::new(0);
    on_executors(waiting, || async {
        while started.elapsed() < window {
            let grant = peer.claim_async(P::key(work::fresh())).await?.granted()?;
            peer.settle_async(grant, OUTCOME).await?;
            pairs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(pairs.into_inner() as f64 / started.elapsed().as_secs_f64())
}

/// Claims and settles every number of a range once, with 1,024 futures in flight.
pub fn fill<P: AsyncPeer>(peer: &P, numbers: Range<u64>, outcome: &'static str) -> Result<()> {
    let next = AtomicU64::new(numbers.start);
    on_executors(1_024, || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return Ok(());
            }
            let grant = peer.claim_async(P::key(number)).await?.granted()?;
            peer.settle_async(grant, outcome).await?;
        }
    })
}

/// The same with 64 in flight, watched: of each of `places` equal parts of the numbers, the longest step in which
/// nothing was answered and the process burned CPU time. A writer that waits for the disk burns none; one that
/// grows its index does.
pub fn fill_watched<P: AsyncPeer>(
    peer: &P,
    numbers: Range<u64>,
    outcome: &'static str,
    places: usize,
) -> Result<Vec<Duration>> {
    let next = AtomicU64::new(numbers.start);
    let watch = Mutex::new((Instant::now(), process_cpu(), vec![Duration::ZERO; places]));
    let part = (numbers.end - numbers.start).div_ceil(places as u64).max(1);
    let answered = |number: u64| -> Result<()> {
        let mut watch = watch.lock().map_err(|_| "a caller panicked")?;
        let (now, cpu) = (Instant::now(), process_cpu());
        let step = (now - watch.0).min(cpu.saturating_sub(watch.1));
        (watch.0, watch.1) = (now, cpu);
        if let Some(longest) = watch.2.get_mut(((number - numbers.start) / part) as usize) {
            *longest = step.max(*longest);
        }
        Ok(())
    };
    let answered = &answered;
    on_executors(64, || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return Ok(());
            }
            let grant = peer.claim_async(P::key(number)).await?.granted()?;
            answered(number)?;
            peer.settle_async(grant, outcome).await?;
            answered(number)?;
        }
    })?;
    Ok(watch.into_inner().map_err(|_| "a caller panicked")?.2)
}

/// Runs `step` once on each key, with 1,024 in flight.
pub fn each<'a, P, F>(peer: &'a P, keys: &'a [P::Key], step: impl Fn(&'a P, P::Key) -> F + Sync) -> Result<()>
where
    P: AsyncPeer,
    F: Future<Output = Result<()>>,
{
    let next = AtomicUsize::new(0);
    on_executors(1_024, || async {
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            step(peer, key.clone()).await?;
        }
        Ok(())
    })
}

/// What of a pair is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// The claim; the settle after it is not counted.
    Claim,
    /// Claim and settle together.
    Pair,
}

/// How long each claim of a fresh key took, or claim and settle, with `waiting` futures in flight.
pub fn latencies<P: AsyncPeer>(peer: &P, waiting: usize, window: Duration, timed: Timed) -> Result<Vec<Duration>> {
    let started = Instant::now();
    let latencies = Mutex::new(Vec::new());
    on_executors(waiting, || async {
        let mut mine = Vec::new();
        while started.elapsed() < window {
            let key = P::key(work::fresh());
            let asked = Instant::now();
            let reply = peer.claim_async(key).await?;
            let claimed = asked.elapsed();
            peer.settle_async(reply.granted()?, OUTCOME).await?;
            mine.push(if timed == Timed::Claim { claimed } else { asked.elapsed() });
        }
        latencies.lock().map_err(|_| "a caller panicked")?.append(&mut mine);
        Ok(())
    })?;
    Ok(latencies.into_inner().map_err(|_| "a caller panicked")?)
}

/// Polls `count` futures on [`EXECUTORS`] threads until all are ready or one failed.
fn on_executors<F>(count: usize, make: impl Fn() -> F + Sync) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let share = |executor: usize| count / EXECUTORS + usize::from(executor < count % EXECUTORS);
    let run = |executor: usize| -> Result<()> {
        let futures: FuturesUnordered<F> = (0..share(executor)).map(|_| make()).collect();
        block_on(futures.try_for_each(|()| async { Ok(()) }))
    };
    thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..EXECUTORS).map(|executor| scope.spawn(move || run(executor))).collect();
        handles.into_iter().try_for_each(join)
    })
}

/// Which clock a reader's speed is divided by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Wall time.
    Wall,
    /// CPU time of the reader's own thread: what others take from it does not count.
    ThreadCpu,
}

/// Looks up `keys` round and round on `readers` threads. Look-ups a second, all readers together.
///
/// # Errors
/// When a chunk did not find `done` of its keys done.
pub fn checks<P: Peer>(
    peer: &P,
    keys: &[P::Key],
    readers: usize,
    done_of_chunk: u64,
    window: Duration,
    clock: Clock,
) -> Result<f64> {
    let chunks: Vec<&[P::Key]> = keys.chunks_exact(CHUNK).collect();
    let chunks = &chunks;
    let one = move |reader: usize| -> Result<f64> {
        let mut source = peer.reader()?;
        rate(clock, window, |round| {
            let chunk = chunks[(round + reader * chunks.len() / readers) % chunks.len()];
            let tally = source.check(chunk)?;
            if tally.done != done_of_chunk {
                return Err(format!("{} of {} looked-up keys were done", tally.done, chunk.len()).into());
            }
            std::hint::black_box(tally);
            Ok(chunk.len())
        })
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..readers).map(|reader| scope.spawn(move || one(reader))).collect();
        handles.into_iter().map(join).sum()
    })
}

/// Runs `step` for the window of wall time; what it says it did, by the clock's second.
pub fn rate(clock: Clock, window: Duration, mut step: impl FnMut(usize) -> Result<usize>) -> Result<f64> {
    let now = |started: Instant| match clock {
        Clock::Wall => started.elapsed(),
        Clock::ThreadCpu => thread_cpu(),
    };
    let started = Instant::now();
    let from = now(started);
    let (mut done, mut round) = (0, 0);
    while started.elapsed() < window {
        done += step(round)?;
        round += 1;
    }
    Ok(done as f64 / (now(started) - from).as_secs_f64())
}

/// Runs `measure` while `writers` threads claim and settle fresh keys.
pub fn while_writing<P: Peer, T>(peer: &P, writers: usize, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    let write = || -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let grant = peer.claim(&P::key(work::fresh()))?.granted()?;
            peer.settle(grant, OUTCOME)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().try_for_each(join)?;
        measured
    })
}

fn join<T>(handle: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    handle.join().unwrap_or_else(|_| Err("a measuring thread panicked".into()))
}
