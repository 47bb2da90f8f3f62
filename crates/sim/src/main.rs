//! Program `pathcall-sim`, which `pathcall sim` starts.

use std::process::ExitCode;

use clap::Parser;
use pathcall_sim::cli::{SimArgs, run_cli};

/// Play faulty networks from seeds and check every result
#[derive(Debug, Parser)]
#[command(name = "pathcall sim", version, arg_required_else_help = true)]
struct Sim {
    #[command(flatten)]
    args: SimArgs,
}

fn main() -> ExitCode {
    run_cli(&Sim::parse().args).unwrap_or_else(|error| {
        eprintln!("pathcall: cannot write output: {error}");
        ExitCode::FAILURE
    })
}
