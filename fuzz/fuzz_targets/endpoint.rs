//! libFuzzer target of `pathcall_fuzzing::endpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::endpoint::run(data));
