//! `pathcall_fuzzing::messages` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::messages::run(data));
