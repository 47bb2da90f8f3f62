//! libFuzzer target of `pathcall_fuzzing::clone`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::clone::run(data));
