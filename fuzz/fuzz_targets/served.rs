//! libFuzzer target of `pathcall_fuzzing::served`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::served::run(data));
