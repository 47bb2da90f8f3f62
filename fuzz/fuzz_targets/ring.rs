//! libFuzzer target of `pathcall_fuzzing::ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::ring::run(data));
