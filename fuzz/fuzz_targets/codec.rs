#![no_main]

#[path = "../../tests/corpus/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| codec::run(bytes));
