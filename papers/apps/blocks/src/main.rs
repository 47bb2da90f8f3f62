//! Elastic block storage whose look-ups are done on the processor or on the accelerator: each message where it is done
//! sooner, beside all on one of them.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use apps_offload::Flags;
use blocks::{FILE, Load, Reads, Shape};
use clap::Parser;

/// Reads blocks, looked up where it is done sooner.
#[derive(Debug, Parser)]
struct Args {
    /// Share of the messages whose reads are of 64 KiB; of the others they are of 4 KiB
    #[arg(long, default_value_t = 0.5)]
    large: f64,
    /// Volumes
    #[arg(long, default_value_t = Shape::default().volumes, value_parser = clap::value_parser!(u32).range(1..=4096))]
    volumes: u32,
    /// Layers of a volume: its snapshots, and what is below them
    #[arg(long, default_value_t = Shape::default().layers, value_parser = clap::value_parser!(u32).range(1..=4096))]
    layers: u32,
    /// Messages
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Times that they are sent; an emulated device remembers what it has answered
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// All that is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flags: Flags,
}

impl Args {
    fn load(&self) -> Result<Load> {
        let Self { large, volumes, layers, messages, seed, .. } = *self;
        ensure!((0.0..=1.0).contains(&large), "--large {large}: expected a share, 0 to 1");
        let shape = Shape { volumes, layers, ..Shape::default() };
        Load::new(
            &self.flags.plan(FILE)?.application,
            Reads { shape, large, messages, rounds: usize::from(self.rounds), seed },
        )
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    apps_offload::main(&args.flags, FILE, args.load())
}
