//! libFuzzer target of `pathcall_fuzzing::function_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::function_parse::run(data));
