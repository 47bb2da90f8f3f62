//! Text as a NetFilter file: a value or a complaint, no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = pathcall_build::filter::parse(text);
});
