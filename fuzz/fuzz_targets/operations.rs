#![no_main]

#[path = "../../tests/faults/driver.rs"]
#[allow(dead_code)]
mod driver;
#[path = "../../tests/corpus/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::run(bytes));
