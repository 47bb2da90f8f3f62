//! Fuzz target of NetFilter files: parsing returns a value or an error, without panic.

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = pathcall_build::filter::parse(text);
}
