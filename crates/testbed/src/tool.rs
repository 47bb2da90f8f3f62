//! Runner of system programs: `ip`, and a shell in a namespace for all others.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::MemfdFlags;
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Error;

/// Required programs, with their Debian packages.
const TOOLS: [(&str, &str); 4] = [("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables"), ("ethtool", "ethtool")];
/// Folders of root's programs, also if PATH lacks them.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Limit of a program's output in an error, in characters.
const REASON_MAX: usize = 300;

/// Checks that this process may build testbeds, and that the programs it takes are installed.
///
/// # Errors
/// Returns an error without root or its capabilities, or if a program is missing.
pub fn check() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    let own = capabilities(None).map_err(|errno| Error::io("reading capabilities")(errno.into()))?;
    if !own.effective.contains(needed) {
        return Err(Error::MissingCapabilities);
    }
    let missing = TOOLS.into_iter().find(|(program, _)| !is_installed(program));
    missing.map_or(Ok(()), |(program, package)| Err(Error::Missing { program, package }))
}

/// True if BPF programs can be loaded here: only in the first user namespace of the system, where each user is mapped to
/// itself.
pub(crate) fn may_load_programs() -> bool {
    // Without the file, the kernel has no user namespaces.
    std::fs::read_to_string("/proc/self/uid_map").map_or(true, |map| {
        let numbers: Vec<&str> = map.split_whitespace().collect();
        numbers == ["0", "0", "4294967295"]
    })
}

/// True if [`command`] would find the program.
pub(crate) fn is_installed(program: &str) -> bool {
    search_path().split(':').any(|directory| Path::new(directory).join(program).is_file())
}

/// Command of a system program, also where the user's PATH is short.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    [&[own.as_str()], &SBIN[..]].concat().join(":")
}

/// Runs `ip` with these lines, one command each.
pub(crate) fn ip(bed: &str, lines: &str) -> Result<(), Error> {
    run_with_input("ip", bed, command("ip").args(["-batch", "-"]), lines)
}

/// Runs a script in a shell in a namespace; an error names the command that failed.
pub(crate) fn shell(namespace: &str, script: &str) -> Result<(), Error> {
    run_with_input("setting up", namespace, command("ip").args(["netns", "exec", namespace, "sh", "-eux"]), script)
}

/// Standard output of a command.
pub(crate) fn output(program: &'static str, place: &str, command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output();
    check_output(program, place, output)
}

fn run_with_input(program: &'static str, place: &str, command: &mut Command, input: &str) -> Result<(), Error> {
    // A file instead of a pipe: the program may write more than a pipe holds before it has read everything.
    let file = memory_file("pathcall-script", input.as_bytes())?;
    check_output(program, place, command.stdin(file).output()).map(|_| ())
}

/// Anonymous file, positioned at its beginning.
pub(crate) fn memory_file(name: &str, contents: &[u8]) -> Result<File, Error> {
    let doing = "a file in memory";
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.map_err(|errno| Error::io(doing)(errno.into()))?);
    file.write_all(contents).and_then(|()| file.rewind()).map_err(Error::io(doing))?;
    Ok(file)
}

fn check_output(program: &'static str, place: &str, output: io::Result<Output>) -> Result<String, Error> {
    let failed = |reason: String| Error::Tool { program, place: place.to_owned(), reason };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(last_lines(&output)));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// Failed command, if the shell printed it, and all output after it.
fn last_lines(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.iter().rposition(|line| line.starts_with("+ ")).unwrap_or(lines.len().saturating_sub(2));
    let reason = lines[from..].join("; ");
    if reason.is_empty() { output.status.to_string() } else { reason.chars().take(REASON_MAX).collect() }
}
