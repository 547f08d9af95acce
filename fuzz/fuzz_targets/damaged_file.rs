#![no_main]

#[path = "../../tests/corpus/damaged_file.rs"]
mod damaged_file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| damaged_file::run(bytes));
