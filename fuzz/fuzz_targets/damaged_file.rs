#![no_main]

#[path = "../../tests/corpus/damaged_file.rs"]
mod damaged_file;

libfuzzer_sys::fuzz_target!(
    // libFuzzer's hook ends the run at any panic; one inside redb is caught, and told as damage. One that
    // leaves `run` still ends it; `cargo test --test corpus` on the input says why.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| damaged_file::run(bytes)
);
