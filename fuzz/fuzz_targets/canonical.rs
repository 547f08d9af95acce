#![no_main]

#[path = "../../tests/corpus/canonical.rs"]
mod canonical;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| canonical::run(bytes));
