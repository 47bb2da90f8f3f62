//! `pathcall check`: a `.proto` in, what its filters mean or what is wrong with them out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The .proto file; imports and filters are looked for beside it
    #[arg(value_name = "FILE.proto")]
    file: PathBuf,
}

/// Mistakes are printed in the manner of compilers, so that editors find their places.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    match pathcall_build::check(&args.file) {
        Ok(report) => {
            print(&report.to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
            Ok(ExitCode::FAILURE)
        }
    }
}
