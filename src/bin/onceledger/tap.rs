//! One output stream of a program: passed on live, and captured.
//!
//! Two threads, so that a slow reader of ours never keeps us from what the program has written: one
//! reads and captures, the other passes on. While the program runs, the first waits for the second
//! (the program then blocks as it would on the stream itself); once it has exited, what is left in
//! the pipe is taken at once.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::output;

/// Bytes that wait to be passed on, at most, while the program runs.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// After the program's exit: a pipe that stays open this long without a byte is somebody else's.
const QUIET: Duration = Duration::from_millis(100);

/// After the program's exit: a pipe that somebody else keeps writing to is left after this.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    writer: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    captured: Vec<u8>,
    /// Whether more came than may be captured.
    over: bool,
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    /// How often something was read: progress.
    reads: u64,
    ended: bool,
    exited: bool,
    /// Nothing more is taken.
    closed: bool,
}

/// What a program wrote to one stream; `None` where it was more than may be kept.
pub type Captured = Option<Vec<u8>>;

impl Tap {
    /// Reads `from` to its end, captures up to `limit` bytes of it, and passes all of it on `to`
    /// the given stream, where there is one.
    pub fn start(
        from: impl Read + Send + 'static,
        to: Option<impl Write + Send + 'static>,
        limit: usize,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let passes_on = to.is_some();
        let ours = Arc::clone(&shared);
        std::thread::Builder::new().spawn(move || read(&ours, from, passes_on, limit))?;
        let ours = Arc::clone(&shared);
        let writer = to.map(|to| std::thread::Builder::new().spawn(move || pass_on(&ours, to))).transpose()?;
        Ok(Tap { shared, writer })
    }

    /// Takes what came, once the program has exited: to the end of the stream, or as long as
    /// somebody else who holds it open does not let it run dry.
    pub fn take(&self) -> Captured {
        let started = Instant::now();
        let mut state = self.shared.state.lock();
        state.exited = true;
        self.shared.changed.notify_all();
        let (mut reads, mut quiet_since) = (state.reads, started);
        while !state.ended && started.elapsed() < GRACE && quiet_since.elapsed() < QUIET {
            self.shared.changed.wait_for(&mut state, QUIET);
            if state.reads != reads {
                (reads, quiet_since) = (state.reads, Instant::now());
            }
        }
        state.closed = true;
        self.shared.changed.notify_all();
        let captured = std::mem::take(&mut state.captured);
        (!state.over).then_some(captured)
    }

    /// Waits until what was taken has been passed on.
    pub fn finish(self) {
        if let Some(writer) = self.writer {
            // Its panic would be ours to report, and it has none.
            let _ = writer.join();
        }
    }
}

fn read(shared: &Shared, mut from: impl Read, passes_on: bool, limit: usize) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let mut state = shared.state.lock();
        state.reads += 1;
        let chunk = buffer.get(..count).unwrap_or_default();
        if chunk.is_empty() || state.closed {
            state.ended = true;
            shared.changed.notify_all();
            return;
        }
        if !state.over && state.captured.len() + count <= limit {
            state.captured.extend_from_slice(chunk);
        } else {
            state.over = true;
            state.captured = Vec::new();
        }
        if passes_on {
            state.queue.push_back(chunk.to_vec());
            state.queued += count;
        }
        shared.changed.notify_all();
        while state.queued > QUEUED_BYTES_MAX && !state.exited {
            shared.changed.wait(&mut state);
        }
    }
}

fn pass_on(shared: &Shared, mut to: impl Write) {
    loop {
        let mut state = shared.state.lock();
        while state.queue.is_empty() && !state.ended && !state.closed {
            shared.changed.wait(&mut state);
        }
        let Some(chunk) = state.queue.pop_front() else { return };
        state.queued -= chunk.len();
        shared.changed.notify_all();
        drop(state);
        if let Err(error) = output::tolerate(to.write_all(&chunk).and_then(|()| to.flush())) {
            output::note(&format!("passing the program's output on: {error}"));
        }
    }
}
