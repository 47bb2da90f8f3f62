//! libFuzzer target of `pathcall_fuzzing::delegate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::delegate::run(data));
