//! libFuzzer target of `pathcall_fuzzing::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::message::run(data));
