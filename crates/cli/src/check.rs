//! `pathcall check`: a `.proto` in, what its filters mean or what is wrong with them out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The .proto file; filters are looked for beside it, and imports, unless folders are given
    #[arg(value_name = "FILE.proto")]
    file: PathBuf,
    /// A folder that imports are looked for in, as `build.rs` says it; several can be given
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    includes: Vec<PathBuf>,
}

/// Mistakes are printed in the manner of compilers, so that editors find their places.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let checked = match args.includes.is_empty() {
        true => pathcall_build::check(&args.file),
        false => pathcall_build::check_all(&[&args.file], &args.includes),
    };
    match checked {
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
