//! libFuzzer target of `pathcall_fuzzing::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::wire::run(data));
