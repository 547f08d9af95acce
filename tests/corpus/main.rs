//! The corpora of the fuzz targets, replayed as ordinary tests (T15). What a fuzzer found stays there.
#![cfg(feature = "testkit")]
// Helpers outside test functions, where clippy.toml does not allow it.
#![allow(clippy::unwrap_used)]

mod canonical;
mod codec;
mod damaged_file;
#[path = "../faults/driver.rs"]
#[allow(dead_code)]
mod driver;
mod operations;
mod tool_call;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        let ran = std::panic::catch_unwind(|| run(&bytes));
        assert!(ran.is_ok(), "replay: {}", path.display());
    }
    println!("T15 {target} cases={} faults=0 unknown=0 violations=0", paths.len());
    assert!(paths.len() >= 10, "{target}: {} cases are under the floor of 10", paths.len());
}

#[test]
fn t15_the_corpus_of_codec() {
    replay("codec", codec::run);
}

#[test]
fn t15_the_corpus_of_canonical() {
    replay("canonical", canonical::run);
}

#[test]
fn t15_the_corpus_of_operations() {
    replay("operations", operations::run);
}

#[test]
fn t15_the_corpus_of_tool_call() {
    replay("tool_call", tool_call::run);
}

#[test]
fn t15_the_corpus_of_damaged_file() {
    replay("damaged_file", damaged_file::run);
}
