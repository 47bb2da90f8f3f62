//! Command `index`: key-value store with look-ups on processor or accelerator, on the path that finishes sooner. Runs
//! with a single device are the comparison.

use std::process::ExitCode;

use anyhow::Result;
use apps_offload::Flags;
use clap::{Parser, ValueEnum};
use index::{FILE, IndexLoad, YcsbMix};

/// Looks up keys on the device that finishes sooner.
#[derive(Debug, Parser)]
struct Args {
    /// Workload of YCSB
    #[arg(long, value_enum, default_value_t = Ycsb::C)]
    ycsb: Ycsb,
    /// Share of new keys among the PUTs
    #[arg(long, default_value_t = 0.0)]
    inserts: f64,
    /// Initial number of keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=1 << 28))]
    keys: u64,
    /// Number of messages
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Number of times that the messages are sent; an emulated device caches its answers (with --ycsb c)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Partitions of the keys; messages of a partition keep their order
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    parts: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ycsb {
    /// 5 % PUTs
    B,
    /// GETs only
    C,
}

impl Args {
    fn load(&self) -> Result<IndexLoad> {
        let puts = if matches!(self.ycsb, Ycsb::B) { 0.05 } else { 0.0 };
        let Self { keys, inserts, parts, messages, seed, .. } = *self;
        let rounds = usize::from(self.rounds);
        let mix = YcsbMix { keys, puts, inserts, parts, messages, rounds, seed, updates_copies: true };
        IndexLoad::new(&self.flags.plan(FILE)?.application, mix)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    apps_offload::main(&args.flags, FILE, args.load())
}
