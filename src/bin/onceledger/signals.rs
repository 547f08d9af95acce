//! What becomes of Ctrl-C, TERM, HUP and QUIT while `run` is at work.
//!
//! Before the claim they end `run` as they always do. Between claim and start they are noted, and the
//! claim is given back. While the program runs they are passed on to it, except those that the
//! terminal has already sent it. After it has exited they are ignored: its outcome is being recorded.
//!
//! `calls` starts nothing more after the first one, and ends by it once what runs is recorded.

#[cfg(unix)]
pub use self::unix::{Signals, Stop};

#[cfg(not(unix))]
pub use self::other::{Signals, Stop};

#[cfg(unix)]
mod unix {
    use std::process::{Child, Command, ExitStatus};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering};

    use parking_lot::Mutex;
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::SignalsInfo;
    use signal_hook::iterator::exfiltrator::WithOrigin;
    use signal_hook::low_level::siginfo::Cause;

    #[derive(Clone, Copy, Debug)]
    enum Phase {
        Idle,
        Claiming,
        Stopped(i32),
        Running(Pid),
        Recording,
    }

    #[derive(Debug)]
    pub struct Signals(Arc<Mutex<Phase>>);

    impl Signals {
        /// Takes over the signals, but those that the caller had `run` ignore (`nohup`).
        pub fn start() -> std::io::Result<Self> {
            let mut signals = SignalsInfo::<WithOrigin>::new(ours())?;
            let phase = Arc::new(Mutex::new(Phase::Idle));
            let shared = Arc::clone(&phase);
            std::thread::Builder::new().spawn(move || {
                for origin in &mut signals {
                    let from_terminal = matches!(origin.cause, Cause::Kernel);
                    arrived(&mut shared.lock(), origin.signal, from_terminal);
                }
            })?;
            Ok(Signals(phase))
        }

        /// From here on a signal is noted instead of ending `run`.
        pub fn claiming(&self) {
            *self.0.lock() = Phase::Claiming;
        }

        /// Nothing was granted: signals end `run` again, one that was noted included.
        pub fn idle(&self) {
            let mut phase = self.0.lock();
            let noted = *phase;
            *phase = Phase::Idle;
            if let Phase::Stopped(signal) = noted {
                die(signal);
            }
        }

        /// Starts the program. `Ok(None)` where a signal came first.
        pub fn spawn(&self, command: &mut Command) -> std::io::Result<Option<Child>> {
            let mut phase = self.0.lock();
            if let Phase::Stopped(_) = *phase {
                return Ok(None);
            }
            let child = command.spawn()?;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            *phase = pid.map_or(Phase::Recording, Phase::Running);
            Ok(Some(child))
        }

        /// Waits for the program. Its process id is ours until signals are no longer sent to it.
        pub fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
            let phase = *self.0.lock();
            if let Phase::Running(pid) = phase {
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while let Err(error) = rustix::process::waitid(WaitId::Pid(pid), ended) {
                    if error != rustix::io::Errno::INTR {
                        return Err(error.into());
                    }
                }
            }
            *self.0.lock() = Phase::Recording;
            child.wait()
        }

        /// Ends `run` by the signal that was noted.
        pub fn die_of_noted(&self) {
            if let Phase::Stopped(signal) = *self.0.lock() {
                die(signal);
            }
        }
    }

    /// Notes the first signal, for a command that ends of itself after it. The second one ends it at
    /// once.
    #[derive(Clone, Debug, Default)]
    pub struct Stop(Arc<AtomicI32>);

    impl Stop {
        pub fn start() -> std::io::Result<Self> {
            let mut signals = SignalsInfo::<WithOrigin>::new(ours())?;
            let stop = Stop::default();
            let shared = stop.clone();
            std::thread::Builder::new().spawn(move || {
                for origin in &mut signals {
                    if shared.0.swap(origin.signal, Ordering::SeqCst) != 0 {
                        die(origin.signal);
                    }
                }
            })?;
            Ok(stop)
        }

        pub fn is_asked(&self) -> bool {
            self.0.load(Ordering::SeqCst) != 0
        }

        /// Ends the command by the signal that was noted.
        pub fn die(&self) {
            die(self.0.load(Ordering::SeqCst));
        }
    }

    /// The signals to take over: not those that the caller had this command ignore (`nohup`).
    fn ours() -> impl Iterator<Item = i32> {
        let ignored = ignored();
        [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
    }

    fn arrived(phase: &mut Phase, signal: i32, from_terminal: bool) {
        match *phase {
            Phase::Idle => die(signal),
            Phase::Claiming => *phase = Phase::Stopped(signal),
            Phase::Running(pid) if !from_terminal => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // It fails where the program has just ended; then there is nobody to tell.
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
            Phase::Running(_) | Phase::Stopped(_) | Phase::Recording => {}
        }
    }

    fn die(signal: i32) {
        // All four end the process; if they cannot, the caller's exit code has to do.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }

    /// The signals that are ignored now, one bit each; none where the system does not say.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}

#[cfg(not(unix))]
mod other {
    use std::process::{Child, Command, ExitStatus};

    /// Without signals there is nothing to pass on.
    #[derive(Debug)]
    pub struct Signals;

    impl Signals {
        pub fn start() -> std::io::Result<Self> {
            Ok(Signals)
        }

        pub fn claiming(&self) {}

        pub fn idle(&self) {}

        pub fn spawn(&self, command: &mut Command) -> std::io::Result<Option<Child>> {
            command.spawn().map(Some)
        }

        pub fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
            child.wait()
        }

        pub fn die_of_noted(&self) {}
    }

    /// As [`Signals`].
    #[derive(Clone, Debug)]
    pub struct Stop;

    impl Stop {
        pub fn start() -> std::io::Result<Self> {
            Ok(Stop)
        }

        pub fn is_asked(&self) -> bool {
            false
        }

        pub fn die(&self) {}
    }
}
