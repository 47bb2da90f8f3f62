//! `pathcall_fuzzing::wire` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::wire::run(data));
