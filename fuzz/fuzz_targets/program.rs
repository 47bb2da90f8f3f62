//! libFuzzer target of `pathcall_fuzzing::program`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::program::run(data));
