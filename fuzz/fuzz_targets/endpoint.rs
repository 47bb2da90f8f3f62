//! `pathcall_fuzzing::endpoint` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::endpoint::run(data));
