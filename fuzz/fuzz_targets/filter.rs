//! libFuzzer target of `pathcall_fuzzing::filter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::filter::run(data));
