//! A key-value store whose index is looked up on the processor or on the accelerator: each message where it is done
//! sooner, beside all on one of them.

use std::process::ExitCode;

use anyhow::Result;
use apps_offload::Flags;
use clap::{Parser, ValueEnum};
use index::{FILE, Load, Mix};

/// Looks keys up where it is done sooner.
#[derive(Debug, Parser)]
struct Args {
    /// Workload of YCSB
    #[arg(long, value_enum, default_value_t = Ycsb::C)]
    ycsb: Ycsb,
    /// Share of the PUTs whose key is a new one
    #[arg(long, default_value_t = 0.0)]
    inserts: f64,
    /// Keys at the start
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=1 << 28))]
    keys: u64,
    /// Messages
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Times that they are sent; an emulated device remembers what it has answered (with --ycsb c)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Parts of the keys whose messages keep their order
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    parts: u64,
    /// All that is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ycsb {
    /// One request in twenty is a PUT
    B,
    /// GETs only
    C,
}

impl Args {
    fn load(&self) -> Result<Load> {
        let puts = if matches!(self.ycsb, Ycsb::B) { 0.05 } else { 0.0 };
        let Self { keys, inserts, parts, messages, seed, .. } = *self;
        let rounds = usize::from(self.rounds);
        let mix = Mix { keys, puts, inserts, parts, messages, rounds, seed, follows: true };
        Load::new(&self.flags.plan(FILE)?.application, mix)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    apps_offload::main(&args.flags, FILE, args.load())
}
