//! Decoder for a corpus file: `cargo run -p pathcall-conformance --example show FILE`.

use std::error::Error;
use std::io::{self, Write};

use pathcall_conformance::corpus::Case;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("expected the name of a file of the corpus")?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let case = Case::from_text(&text).map_err(|error| format!("{file}: {error}"))?;
    let mut out = io::stdout().lock();
    for (number, line) in (2..).zip(&case.lines) {
        writeln!(out, "{number:>4} {line}")?;
    }
    Ok(())
}
