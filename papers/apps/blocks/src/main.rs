//! Elastic block storage with look-ups on processor or accelerator: each message takes the path that finishes sooner.
//! Runs with a single device are the comparison.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use apps_offload::Flags;
use blocks::{BlockLoad, DiskShape, FILE, Reads};
use clap::Parser;

/// Reads blocks of volumes; look-ups run on the device that finishes sooner.
#[derive(Debug, Parser)]
struct Args {
    /// Share of the messages with reads of 64 KiB; the others have reads of 4 KiB
    #[arg(long, default_value_t = 0.5)]
    large: f64,
    /// Number of volumes
    #[arg(long, default_value_t = DiskShape::default().volumes, value_parser = clap::value_parser!(u32).range(1..=4096))]
    volumes: u32,
    /// Layers per volume: snapshots and the base layer
    #[arg(long, default_value_t = DiskShape::default().layers, value_parser = clap::value_parser!(u32).range(1..=4096))]
    layers: u32,
    /// Number of messages
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Number of times that the messages are sent; an emulated device caches its answers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flags: Flags,
}

impl Args {
    fn load(&self) -> Result<BlockLoad> {
        let Self { large, volumes, layers, messages, seed, .. } = *self;
        ensure!((0.0..=1.0).contains(&large), "--large {large}: expected a share, 0 to 1");
        let shape = DiskShape { volumes, layers, ..DiskShape::default() };
        BlockLoad::new(
            &self.flags.plan(FILE)?.application,
            Reads { shape, large, messages, rounds: usize::from(self.rounds), seed },
        )
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    apps_offload::main(&args.flags, FILE, args.load())
}
