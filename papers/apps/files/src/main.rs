//! Command `files`: writes and reads files over processor and accelerator; prints the paths of the chunks, and
//! latencies.

use std::process::ExitCode;

use apps_offload::Flags;
use clap::Parser;
use files::{APPLICATION, Codec, FILE, FileLoad};

/// Distributed file system: chunks are packed at the sender and unpacked at the receiver.
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Number of files written
    #[arg(long, default_value_t = 256)]
    files: usize,
    /// Bytes of a file
    #[arg(long, default_value_t = FILE)]
    file_bytes: usize,
    /// Codec of the processor: words, lz4
    #[arg(long, default_value = "lz4")]
    codec: Codec,
    /// Only write
    #[arg(long)]
    no_reads: bool,
}

fn main() -> ExitCode {
    let Args { flags, files, file_bytes, codec, no_reads } = Args::parse();
    apps_offload::main(&flags, APPLICATION, Ok(FileLoad::new(codec, files, file_bytes, !no_reads)))
}
