//! A folder with a ledger, and the binary run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

pub struct Place {
    folder: tempfile::TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Said {
    fn new(output: Output) -> Self {
        Said {
            code: output.status.code(),
            signal: std::os::unix::process::ExitStatusExt::signal(&output.status),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in {:?}", self.err);
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert_eq!(String::from_utf8_lossy(&self.out), text, "{}", self.err);
        self
    }

    /// The one JSON object that it printed.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.into_iter().next().unwrap()
    }

    #[track_caller]
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::str::from_utf8(&self.out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A command under way.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    #[track_caller]
    pub fn finish(self) -> Said {
        // Read both pipes from threads: a full pipe must not look like a hang.
        let (send, receive) = std::sync::mpsc::channel();
        let pid = self.pid();
        std::thread::spawn(move || send.send(self.0.wait_with_output().unwrap()));
        match receive.recv_timeout(HANG) {
            Ok(output) => Said::new(output),
            Err(_) => {
                signal(pid, "KILL");
                panic!("process {pid} hung");
            }
        }
    }
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

pub fn lives(pid: u32) -> bool {
    // A zombie is not alive.
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < HANG, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Asks again and again until the answer has this exit code.
#[track_caller]
pub fn until_code(what: &str, code: i32, mut ask: impl FnMut() -> Said) {
    let started = Instant::now();
    let mut asked = 0;
    loop {
        let said = ask();
        asked += 1;
        if said.code == Some(code) {
            return;
        }
        assert!(started.elapsed() < HANG, "waited for: {what}; asked {asked} times, the last answer is {said:?}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_onceledger")
}

impl Place {
    pub fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    /// A place with a ledger, where the system has one on a disk in memory: syncs cost nothing there.
    pub fn quick_with_ledger() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let place = Place { folder: folder.unwrap() };
        place.once(&["init", "--ledger", "l.redb"]).code(0);
        place
    }

    /// A place with a ledger `l.redb`.
    pub fn with_ledger() -> Self {
        let place = Place::new();
        place.once(&["init", "--ledger", "l.redb"]).code(0);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("ONCELEDGER_TESTKIT_PAUSE");
        command
    }

    #[track_caller]
    pub fn once<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Said {
        Running(self.command(arguments).spawn().unwrap()).finish()
    }

    fn run_command(&self, key: &str, options: &str, script: &str) -> Command {
        let mut command = self.command(&["run", "--ledger", "l.redb", "--key", "job", "--key", key]);
        command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
        command
    }

    /// `run --ledger l.redb --key job --key KEY OPTIONS -- sh -c SCRIPT`
    #[track_caller]
    pub fn run(&self, key: &str, options: &str, script: &str) -> Said {
        self.start(key, options, script).finish()
    }

    pub fn start(&self, key: &str, options: &str, script: &str) -> Running {
        Running(self.run_command(key, options, script).spawn().unwrap())
    }

    /// As [`Place::start`], stopped at a point of `run`. The marker is `stopped` until it is removed.
    #[track_caller]
    pub fn stopped_at(&self, point: &str, key: &str, options: &str, script: &str) -> Running {
        let marker = self.path("stopped");
        let pause = format!("{point}={}", marker.display());
        let mut child = self.run_command(key, options, script).env("ONCELEDGER_TESTKIT_PAUSE", pause).spawn().unwrap();
        until(point, || {
            assert!(child.try_wait().unwrap().is_none(), "run ended before {point}");
            marker.exists()
        });
        Running(child)
    }

    pub fn go_on(&self) {
        std::fs::remove_file(self.path("stopped")).unwrap();
    }

    /// A command about `--key job --key KEY`, with JSON.
    #[track_caller]
    pub fn about(&self, command: &str, key: &str) -> Said {
        self.once(&[command, "--ledger", "l.redb", "--json", "--key", "job", "--key", key]).code(0)
    }

    #[track_caller]
    pub fn show(&self, key: &str) -> serde_json::Value {
        self.about("show", key).json()
    }

    #[track_caller]
    pub fn events(&self, key: &str) -> Vec<String> {
        self.about("history", key).lines().iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
    }

    /// How often effects ran.
    pub fn effects(&self) -> usize {
        std::fs::read_to_string(self.path("effects.log")).unwrap_or_default().lines().count()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

/// A program that has one effect and says so.
pub const EFFECT: &str = "echo effect | tee -a effects.log";
