//! `pathcall_fuzzing::message` by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pathcall_fuzzing::message::run(data));
