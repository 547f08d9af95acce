//! One command, one table: `cargo run --release --manifest-path benches/peers/Cargo.toml`.

mod elsewhere;
mod rows;

use onceledger_peers::contest::{self, Bench};
use onceledger_peers::options::{HELP, Options};
use onceledger_peers::peer::Peer;
use onceledger_peers::peers::{fjall::FjallEach, lmdb::LmdbBatch, raw_redb::RedbBatch, sqlite::SqliteEach};
use onceledger_peers::subject::{Subject, TheSubject};
use onceledger_peers::work::{CHUNK, OUTCOME};
use onceledger_peers::{Result, drive, limits, system, table};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == "--child").is_some() {
        return limits::child(arguments);
    }
    let Some(options) = Options::read(arguments)? else {
        print!("{HELP}");
        return Ok(());
    };
    if options.list {
        return list(&options);
    }
    system::refuse_memory_disk(&options.dir)?;
    let head = head(&options);
    if options.json {
        eprintln!("{head}")
    } else {
        println!("{head}")
    }

    let mut bench = Bench::new(options);
    let mut rows = contest::run(&mut bench, rows::GROUPS);
    rows.extend(elsewhere::run(&bench.options));
    rows.extend(limits::run(&bench));
    if bench.options.json { table::print_json(&rows) } else { table::print_text(&rows) }
}

fn list(options: &Options) -> Result<()> {
    let groups = rows::GROUPS.iter().flat_map(|group| group.peers.iter().map(|against| (group.work, against.peer)));
    let others = elsewhere::NAMES.iter().copied();
    for (work, peer) in groups.chain(others).chain(limits::names()).filter(|(w, p)| options.wants(w, p)) {
        println!("{work} | {peer}");
    }
    Ok(())
}

fn head(options: &Options) -> String {
    let warning = if TheSubject::STANDS_IN {
        "\n** onceledger is not measured: raw redb stands in for it (feature `ours` is off). **\n"
    } else {
        ""
    };
    let divided = match options.divide {
        1 => String::new(),
        divide => format!(" Every population named in a row is divided by {divide}."),
    };
    let commits = [
        (TheSubject::NAME, TheSubject::COMMITS),
        ("raw redb", RedbBatch::COMMITS),
        ("SQLite", SqliteEach::COMMITS),
        ("fjall", FjallEach::COMMITS),
        ("LMDB", LmdbBatch::COMMITS),
        ("agent-effects", elsewhere::COMMITS),
    ]
    .map(|(name, commits)| format!("- {name}: {commits}"))
    .join("\n");
    format!(
        "{warning}\
        Machine: {}. Directory: {}.\n\
        Medians of {} interleaved rounds of {:.2} s; a ratio above 1 means that {} is ahead.{divided}\n\
        Outcomes have {} bytes. Look-ups are random over the population, warm; peers that read inside a \
        transaction keep it for {CHUNK} look-ups, SQLite reads one by one unless the row says otherwise.\n\
        `Waiting` are futures in flight, polled by {} threads on both sides; batching peers have a writer thread \
        that commits everything queued. Their rows from an empty file run {:.2} s: the shorter, the better for \
        peers that update in place.\n\n\
        What is on disk when a claim or a settle returns:\n{commits}\n",
        system::machine(),
        options.dir.display(),
        options.rounds,
        options.window.as_secs_f64(),
        TheSubject::NAME,
        OUTCOME.len(),
        drive::EXECUTORS,
        options.window.max(contest::FRESH_WINDOW_MIN).as_secs_f64(),
    )
}
