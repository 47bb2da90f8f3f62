//! Writes files and reads them, over the processor and an accelerator: where their chunks went, and how soon.

use std::process::ExitCode;

use apps_offload::Flags;
use clap::Parser;
use files::{APPLICATION, Codec, FILE, Load};

/// A distributed file system: chunks are packed where they leave and unpacked where they arrive.
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Files that are written, in all
    #[arg(long, default_value_t = 256)]
    files: usize,
    /// Bytes of a file
    #[arg(long, default_value_t = FILE)]
    file_bytes: usize,
    /// How the processor packs: words, lz4
    #[arg(long, default_value = "lz4")]
    codec: Codec,
    /// Only write
    #[arg(long)]
    no_reads: bool,
}

fn main() -> ExitCode {
    let Args { flags, files, file_bytes, codec, no_reads } = Args::parse();
    apps_offload::main(&flags, APPLICATION, Ok(Load::new(codec, files, file_bytes, !no_reads)))
}
