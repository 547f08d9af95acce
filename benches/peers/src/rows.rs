//! The rows that compare with a peer of this package, as data. The targets are those that docs/BENCHMARKS.md states; rows without
//! one are printed for orientation, in a quick run only with `--only`.

use onceledger_peers::contest::{
    Against, Group, Prepare, checks_done, checks_vacant, checks_while_writing, pairs_threads, pairs_waiting_filled,
    pairs_waiting_fresh,
};
use onceledger_peers::peers::fjall::{FjallBatch, FjallEach};
use onceledger_peers::peers::lmdb::LmdbBatch;
use onceledger_peers::peers::raw_redb::RedbBatch;
use onceledger_peers::peers::sqlite::{SqliteBatch, SqliteBatchKept, SqliteEach, SqliteEachQueued};
use onceledger_peers::subject::{TheSubject, checks_by_ready_key, checks_from_arguments};

/// Done claims in the stores of the look-up rows that have a target: what a busy agent does in days, and
/// what fits into the caches of every store.
const HOT: u64 = 10_000;
/// Done claims in the stores of the other look-up rows: far more than any cache of the processor holds.
const POPULATION: u64 = 1_000_000;
const TWO_MILLION: u64 = 2_000_000;
const FIVE_MILLION: u64 = 5_000_000;

const fn at_least(ratio: f64, peer: &'static str, theirs: Prepare) -> Against {
    Against { peer, at_least: Some(ratio), in_quick: true, theirs }
}

const fn beside(peer: &'static str, theirs: Prepare) -> Against {
    Against { peer, at_least: None, in_quick: false, theirs }
}

/// Every group, in the order in which it is measured.
pub const GROUPS: &[Group] = &[
    Group {
        stage: 1,
        work: "check of a done claim with its outcome, 2 readers",
        unit: "checks/s",
        ours: checks_done::<TheSubject, 2, HOT>,
        peers: &[
            at_least(12.0, "raw redb read", checks_done::<RedbBatch, 2, HOT>),
            at_least(3.0, "LMDB", checks_done::<LmdbBatch, 2, HOT>),
            at_least(60.0, "SQLite", checks_done::<SqliteBatch, 2, HOT>),
            beside("SQLite, read transaction kept over 1,024", checks_done::<SqliteBatchKept, 2, HOT>),
            beside("fjall", checks_done::<FjallBatch, 2, HOT>),
        ],
    },
    Group {
        stage: 1,
        work: "check of a vacant key, 2 readers",
        unit: "checks/s",
        ours: checks_vacant::<TheSubject, 2, HOT>,
        peers: &[at_least(15.0, "raw redb read", checks_vacant::<RedbBatch, 2, HOT>)],
    },
    Group {
        stage: 1,
        work: "check of a done claim with its outcome, 2 readers, 1 million keys",
        unit: "checks/s",
        ours: checks_done::<TheSubject, 2, POPULATION>,
        peers: &[
            beside("raw redb read", checks_done::<RedbBatch, 2, POPULATION>),
            beside("LMDB", checks_done::<LmdbBatch, 2, POPULATION>),
            beside("SQLite", checks_done::<SqliteBatch, 2, POPULATION>),
            beside("SQLite, read transaction kept over 1,024", checks_done::<SqliteBatchKept, 2, POPULATION>),
            beside("fjall", checks_done::<FjallBatch, 2, POPULATION>),
        ],
    },
    Group {
        stage: 1,
        work: "check of a vacant key, 2 readers, 1 million keys",
        unit: "checks/s",
        ours: checks_vacant::<TheSubject, 2, POPULATION>,
        peers: &[beside("raw redb read", checks_vacant::<RedbBatch, 2, POPULATION>)],
    },
    Group {
        stage: 1,
        work: "check from 200 bytes of raw JSON arguments, 1 reader",
        unit: "checks/s",
        ours: checks_from_arguments::<TheSubject, POPULATION>,
        peers: &[at_least(2.0, "SQLite look-up by a ready key", checks_by_ready_key::<SqliteBatch, POPULATION>)],
    },
    Group {
        stage: 1,
        work: "check, 1 reader, while 64 claimers write (thread CPU time)",
        unit: "checks/CPU s",
        ours: checks_while_writing::<TheSubject, 64, POPULATION>,
        peers: &[at_least(0.7, "itself idle", checks_while_writing::<TheSubject, 0, POPULATION>)],
    },
    Group {
        stage: 2,
        work: "claim + settle, 1,024 waiting",
        unit: "pairs/s",
        ours: pairs_waiting_fresh::<TheSubject, 1_024, 0>,
        peers: &[
            at_least(40.0, "SQLite, one commit each", pairs_waiting_fresh::<SqliteEachQueued, 1_024, 0>),
            at_least(7.0, "SQLite, best batch, empty file", pairs_waiting_fresh::<SqliteBatch, 1_024, 0>),
            beside("fjall, best batch, empty file", pairs_waiting_fresh::<FjallBatch, 1_024, 0>),
            beside("LMDB, best batch, empty file", pairs_waiting_fresh::<LmdbBatch, 1_024, 0>),
            beside("raw redb, best batch, empty file", pairs_waiting_fresh::<RedbBatch, 1_024, 0>),
        ],
    },
    Group {
        stage: 3,
        work: "claim + settle, 1,024 waiting, 2 million live claims",
        unit: "pairs/s",
        ours: pairs_waiting_filled::<TheSubject, 1_024, TWO_MILLION>,
        peers: &[
            at_least(
                8.0,
                "raw redb keyed by digest, best batch, 2 million rows",
                pairs_waiting_filled::<RedbBatch, 1_024, TWO_MILLION>,
            ),
            at_least(
                7.0,
                "SQLite, best batch, 2 million rows",
                pairs_waiting_filled::<SqliteBatch, 1_024, TWO_MILLION>,
            ),
        ],
    },
    Group {
        stage: 4,
        work: "claim + settle, 128 threads",
        unit: "pairs/s",
        ours: pairs_threads::<TheSubject, 128>,
        peers: &[
            at_least(12.0, "SQLite, one commit each", pairs_threads::<SqliteEach, 128>),
            at_least(8.0, "fjall, synced", pairs_threads::<FjallEach, 128>),
            beside("fjall, best batch", pairs_threads::<FjallBatch, 128>),
            beside("SQLite, best batch", pairs_threads::<SqliteBatch, 128>),
        ],
    },
    Group {
        stage: 5,
        work: "claim + settle, 1 caller",
        unit: "pairs/s",
        ours: pairs_threads::<TheSubject, 1>,
        peers: &[at_least(0.3, "SQLite, one commit each", pairs_threads::<SqliteEach, 1>)],
    },
    Group {
        stage: 6,
        work: "claim + settle, 1,024 waiting, 5 million live claims",
        unit: "pairs/s",
        ours: pairs_waiting_filled::<TheSubject, 1_024, FIVE_MILLION>,
        peers: &[at_least(0.8, "itself at 10 thousand", pairs_waiting_fresh::<TheSubject, 1_024, 10_000>)],
    },
];
