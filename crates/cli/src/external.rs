//! External commands: `pathcall NAME` runs the program `pathcall-NAME`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::failure::Failure;

/// Known external programs, for `pathcall --help`.
pub(crate) const HELP: &str = "Commands of separate programs, if installed:
  demo        Show what each ability does: the same work with the element, in software and as plain gRPC, compared
  sim         Play faulty networks from seeds and check every result
  testbed     Build several hosts on this machine, with links of a given rate and quality (needs root)";

/// Replaces this process by the program that the first word names, with the other words as its arguments.
pub(crate) fn run(words: &[OsString]) -> Result<ExitCode, Failure> {
    let Some((name, arguments)) = words.split_first() else { return Ok(ExitCode::SUCCESS) };
    let name = name.to_string_lossy().into_owned();
    let program = format!("pathcall-{name}{}", env::consts::EXE_SUFFIX);
    let Some(path) = find(&program) else { return Err(Failure::NoCommand { name, program }) };
    replace_process(Command::new(&path).args(arguments)).map_err(|source| Failure::Spawn { program, source })
}

/// Searches the folder of this program, then PATH.
fn find(program: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(program)));
    let path = env::var_os("PATH").unwrap_or_default();
    beside.into_iter().chain(env::split_paths(&path).map(|folder| folder.join(program))).find(|path| path.is_file())
}

/// Replaces this process by the command, so that signals and exit code are the command's own. Returns only on failure.
#[cfg(unix)]
fn replace_process(command: &mut Command) -> std::io::Result<ExitCode> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

/// Runs the command to its end.
#[cfg(not(unix))]
fn replace_process(command: &mut Command) -> std::io::Result<ExitCode> {
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
