//! What `calls` prints while commands run: answers on stdout in the order of their calls, the commands'
//! own words on stderr, and a bar where that is a terminal.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use parking_lot::Mutex;

use crate::exit::Failure;
use crate::output;

const BAR_CHARS: usize = 24;

pub struct Printer {
    total: usize,
    /// Whether there is a bar, and whether stdout would write over it.
    bar: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The next answer to print.
    next: usize,
    /// Answers that came before their turn.
    early: BTreeMap<usize, String>,
    ended: usize,
    failed: Option<Failure>,
}

impl Printer {
    pub fn new(total: usize) -> Self {
        let bar = total > 0 && std::io::stderr().is_terminal();
        let printer = Printer { total, bar, state: Mutex::default() };
        printer.draw(&printer.state.lock());
        printer
    }

    /// A call has ended: prints what its command said on stderr, and every answer whose turn it is.
    pub fn ended(&self, at: usize, answer: String, said: &[u8], notes: &[String]) {
        let mut state = self.state.lock();
        state.ended += 1;
        state.early.insert(at, answer);
        self.clear();
        // With stderr closed there is nobody to tell.
        let _ = std::io::stderr().write_all(said);
        if said.last().is_some_and(|last| *last != b'\n') {
            let _ = std::io::stderr().write_all(b"\n");
        }
        notes.iter().for_each(|note| output::note(note));
        while let Some(line) = {
            let next = state.next;
            state.early.remove(&next)
        } {
            state.next += 1;
            print(&mut state, &line);
        }
        self.draw(&state);
    }

    /// Whether answers can still be written.
    pub fn works(&self) -> bool {
        self.state.lock().failed.is_none()
    }

    /// Prints the answers that were left behind by calls that were never started.
    pub fn finish(self) -> Result<(), Failure> {
        self.clear();
        let mut state = self.state.into_inner();
        for line in std::mem::take(&mut state.early).into_values() {
            print(&mut state, &line);
        }
        state.failed.map_or(Ok(()), Err)
    }

    fn clear(&self) {
        if self.bar {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn draw(&self, state: &State) {
        if self.bar {
            let full = BAR_CHARS * state.ended / self.total;
            let (done, open) = ("#".repeat(full), "-".repeat(BAR_CHARS - full));
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r[{done}{open}] {}/{}", state.ended, self.total).and_then(|()| stderr.flush());
        }
    }
}

fn print(state: &mut State, line: &str) {
    if state.failed.is_none() {
        state.failed = output::bytes(format!("{line}\n").as_bytes()).err();
    }
}
