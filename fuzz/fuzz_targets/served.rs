//! `pathcall_fuzzing::served` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::served::run(data));
