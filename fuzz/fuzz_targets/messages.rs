//! libFuzzer target of `pathcall_fuzzing::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::messages::run(data));
