//! libFuzzer target of `pathcall_fuzzing::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::capture::run(data));
