//! libFuzzer target of `pathcall_fuzzing::place_model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::place_model::run(data));
