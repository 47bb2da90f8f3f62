//! `pathcall_fuzzing::delegate` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::delegate::run(data));
