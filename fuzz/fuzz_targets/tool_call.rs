#![no_main]

#[path = "../../tests/corpus/tool_call.rs"]
mod tool_call;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tool_call::run(bytes));
