//! `pathcall_fuzzing::ring` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::ring::run(data));
