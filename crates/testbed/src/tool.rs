//! Runs the programs that do the work: `ip`, and a shell in a namespace for all others.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::MemfdFlags;
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Error;

/// Programs that are used, and Debian's packages of them.
const TOOLS: [(&str, &str); 4] = [("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables"), ("ethtool", "ethtool")];
/// Where programs of root's lie, whether the search path names it or not.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Of what a program printed, in an error.
const SAID_MAX: usize = 300;

/// Whether a testbed can be made here.
pub(crate) fn check() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    let own = capabilities(None).map_err(|errno| Error::io("reading capabilities")(errno.into()))?;
    if !own.effective.contains(needed) {
        return Err(Error::NotAllowed);
    }
    let missing = TOOLS.into_iter().find(|(program, _)| !is_installed(program));
    missing.map_or(Ok(()), |(program, package)| Err(Error::Missing { program, package }))
}

/// Looks where [`command`]s are found.
pub(crate) fn is_installed(program: &str) -> bool {
    search_path().split(':').any(|directory| Path::new(directory).join(program).is_file())
}

/// A program of the system's, also where the user's search path is short.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    [&[own.as_str()], &SBIN[..]].concat().join(":")
}

/// `ip` with these lines, one command each.
pub(crate) fn ip(bed: &str, lines: &str) -> Result<(), Error> {
    feed("ip", bed, command("ip").args(["-batch", "-"]), lines)
}

/// A shell in a namespace; what it runs is in the error of what fails.
pub(crate) fn shell(namespace: &str, script: &str) -> Result<(), Error> {
    feed("setting up", namespace, command("ip").args(["netns", "exec", namespace, "sh", "-eux"]), script)
}

/// What the command prints.
pub(crate) fn output(program: &'static str, place: &str, command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output();
    checked(program, place, output)
}

fn feed(program: &'static str, place: &str, command: &mut Command, input: &str) -> Result<(), Error> {
    // A file, not a pipe: whoever reads it may say more than a pipe holds before it has read all.
    let file = memory_file("pathcall-script", input.as_bytes())?;
    checked(program, place, command.stdin(file).output()).map(|_| ())
}

/// A file without a name, to be read from its beginning.
pub(crate) fn memory_file(name: &str, contents: &[u8]) -> Result<File, Error> {
    let doing = "a file in memory";
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.map_err(|errno| Error::io(doing)(errno.into()))?);
    file.write_all(contents).and_then(|()| file.rewind()).map_err(Error::io(doing))?;
    Ok(file)
}

fn checked(program: &'static str, place: &str, output: io::Result<Output>) -> Result<String, Error> {
    let failed = |said: String| Error::Tool { program, place: place.to_owned(), said };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(last_words(&output)));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// The command that failed, if a shell said what it ran, and all that came after.
fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.iter().rposition(|line| line.starts_with("+ ")).unwrap_or(lines.len().saturating_sub(2));
    let said = lines[from..].join("; ");
    if said.is_empty() { output.status.to_string() } else { said.chars().take(SAID_MAX).collect() }
}
