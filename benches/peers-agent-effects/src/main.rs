//! The rows that compare with `agent-effects` 0.2 on its SQLite store. `../peers` runs this program and adds
//! its rows to the table; alone it prints them in the same form, with the same options.

mod effects;

use onceledger_peers::contest::{self, Against, Bench, Group};
use onceledger_peers::options::{HELP, Options};
use onceledger_peers::subject::TheSubject;
use onceledger_peers::{Result, system, table};

use effects::{effects_first, effects_replay, ours_first, ours_replay};

const PEER: &str = "agent-effects + SQLite";

const GROUPS: &[Group] = &[
    Group {
        stage: 1,
        work: "first runs, 128 tasks",
        unit: "runs/s",
        ours: ours_first::<TheSubject, 128>,
        peers: &[Against { peer: PEER, at_least: Some(50.0), in_quick: true, theirs: effects_first::<128> }],
    },
    Group {
        stage: 2,
        work: "replays, 128 tasks",
        unit: "replays/s",
        ours: ours_replay::<TheSubject, 128>,
        peers: &[Against { peer: PEER, at_least: Some(50.0), in_quick: true, theirs: effects_replay::<128> }],
    },
    Group {
        stage: 3,
        work: "first runs, 1 task",
        unit: "runs/s",
        ours: ours_first::<TheSubject, 1>,
        peers: &[Against { peer: PEER, at_least: None, in_quick: true, theirs: effects_first::<1> }],
    },
    Group {
        stage: 4,
        work: "replays, 1 task",
        unit: "replays/s",
        ours: ours_replay::<TheSubject, 1>,
        peers: &[Against { peer: PEER, at_least: None, in_quick: true, theirs: effects_replay::<1> }],
    },
];

fn main() -> Result<()> {
    let Some(options) = Options::read(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    if options.list {
        GROUPS.iter().for_each(|group| println!("{} | {PEER}", group.work));
        return Ok(());
    }
    system::refuse_memory_disk(&options.dir)?;
    let mut bench = Bench::new(options);
    let rows = contest::run(&mut bench, GROUPS);
    if bench.options.json { table::print_json(&rows) } else { table::print_text(&rows) }
}
