//! Text as a NetFilter file: a value or a complaint, no panic.

/// Takes one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = pathcall_build::filter::parse(text);
}
