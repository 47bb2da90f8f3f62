//! Command `pathcall check`: checks a `.proto` file with its NetFilters, and explains the filters or lists the errors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The .proto file; filters and imports are searched in its folder unless other folders are given
    #[arg(value_name = "FILE.proto")]
    file: PathBuf,
    /// Folder to search for imports, as in `build.rs`; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    includes: Vec<PathBuf>,
}

/// Prints errors in the format of compilers, so that editors can jump to the source line.
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
