//! The demo's part of *function*: source NAT over a capture of TCP connections, split between an element of few entries and three
//! servers, and what ran where.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::{RUN_MAX, last_line};
use crate::failure::Failure;
use pathcall_console::print;

const FUNCTION: &str = include_str!("../../../functions/snat.p4c");
/// The first 600 packets of four transfers between two hosts of a testbed, whose links lost 1 %.
const CAPTURE: &[u8] = include_bytes!("../../../functions/tcp.pcap");
/// The capture's client is the network inside.
const INSIDE: [&str; 4] = ["-D", "INSIDE=0x0A4D0100", "-D", "INSIDE_MASK=0xFFFFFF00"];

const STORY: &str = "
function: what a packet meets on its way can be written once and be worked on at two places. Source NAT over a capture of
TCP connections: an element with room for four entries of each table works on the flows that fit, three servers on the
rest.
";

/// Where it finds and leaves its files.
pub(super) struct Demo {
    directory: PathBuf,
    /// The command that runs it.
    pathcall: PathBuf,
}

/// In a folder of its own in this directory, where the command is.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { directory: directory.join("function"), pathcall: super::find_one(directory, super::PATHCALL)? })
}

impl Demo {
    /// Runs it as a user would, and prints what it says.
    pub(super) async fn run(&self) -> Result<(), Failure> {
        print(STORY)?;
        let at = |name: &str| self.directory.join(name);
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(at(name), bytes).map_err(|source| Failure::File { path: at(name), source })
        };
        std::fs::create_dir_all(&self.directory)
            .map_err(|source| Failure::File { path: self.directory.clone(), source })?;
        write("snat.p4c", FUNCTION.as_bytes())?;
        write("in.pcap", CAPTURE)?;
        let mut command = Command::new(&self.pathcall);
        command.args(["function", "run"]).arg(at("snat.p4c")).args(INSIDE).args(["--servers", "3"]);
        command.args(["--element-entries", "4", "--pcap"]).arg(at("in.pcap")).arg("--out").arg(at("out.pcap"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        let run = "snat (function)".to_owned();
        let done = match tokio::time::timeout(RUN_MAX, command.output()).await {
            Ok(done) => {
                done.map_err(|source| Failure::Spawn { program: self.pathcall.display().to_string(), source })?
            }
            Err(_) => return Err(Failure::Stuck { run, after: RUN_MAX }),
        };
        if !done.status.success() {
            return Err(Failure::Run { run, status: done.status, said: last_line(&done.stderr) });
        }
        let said = String::from_utf8_lossy(&done.stdout);
        Ok(print(&format!("{said}what left is in {}\n", at("out.pcap").display()))?)
    }
}
