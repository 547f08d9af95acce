//! The rows of `../peers-agent-effects`, a program of its own: its SQLite binding and rusqlite's cannot be
//! linked into one. It is built and run by the same cargo, and its rows join the table.

use std::path::Path;
use std::process::{Command, Stdio};

use onceledger_peers::Result;
use onceledger_peers::options::Options;
use onceledger_peers::table::Row;

/// What agent-effects commits.
pub const COMMITS: &str = "agent-effects 0.2, its SqliteStore: WAL, synchronous=FULL, several commits an effect";

/// Its rows: work and peer.
pub const NAMES: [(&str, &str); 4] = [
    ("first runs, 128 tasks", PEER),
    ("replays, 128 tasks", PEER),
    ("first runs, 1 task", PEER),
    ("replays, 1 task", PEER),
];
const PEER: &str = "agent-effects + SQLite";

/// Runs it, if any of its rows is wanted.
pub fn run(options: &Options) -> Vec<Row> {
    let wanted = NAMES.iter().filter(|(work, peer)| options.wants(work, peer));
    if wanted.clone().next().is_none() {
        return Vec::new();
    }
    measure(options)
        .unwrap_or_else(|error| wanted.map(|(work, peer)| Row::new(work, peer, None, "").failed(&error)).collect())
}

fn measure(options: &Options) -> Result<Vec<Row>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers-agent-effects/Cargo.toml");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    if cfg!(feature = "ours") {
        command.args(["--features", "ours"]);
    }
    command.args(["--", "--json", "--dir"]).arg(std::path::absolute(&options.dir)?).args(&options.repeat);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("peers-agent-effects ended with {}", output.status).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
