//! Demo of *function*: source NAT over a capture of TCP connections, split between an element with few entries and
//! three servers.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::findings::verdict;
use super::{RUN_MAX, last_line};
use crate::failure::Failure;
use pathcall_console::print;

const FUNCTION: &str = include_str!("../../../functions/snat.p4c");
/// Capture with the first 600 packets of four transfers between two hosts of a testbed whose links lost 1 %.
const CAPTURE: &[u8] = include_bytes!("../../../functions/tcp.pcap");
/// Definitions: the client of the capture is in the inside network.
const INSIDE: [&str; 4] = ["-D", "INSIDE=0x0A4D0100", "-D", "INSIDE_MASK=0xFFFFFF00"];

const DESCRIPTION: &str = "
function: one program is split between an element and servers. Workload: source NAT over a capture of
TCP connections; the element has room for four entries of each table, and three servers handle the
other flows.
";

/// Folder of the demo's files.
pub(super) struct Demo {
    directory: PathBuf,
    /// Path of the command `pathcall`.
    pathcall: PathBuf,
}

/// Uses a subfolder of this folder, which also has the command.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { directory: directory.join("function"), pathcall: super::find_one(directory, super::PATHCALL)? })
}

impl Demo {
    /// Runs the function by the command, and prints its output.
    pub(super) async fn run(&self) -> Result<(), Failure> {
        print(DESCRIPTION)?;
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
            return Err(Failure::Run { run, status: done.status, reason: last_line(&done.stderr) });
        }
        let printed = String::from_utf8_lossy(&done.stdout);
        let gains = verdict(
            "the element handles packets of the flows in its tables alone",
            "packets of all other flows need a server, with its delay",
        );
        Ok(print(&format!("{printed}{gains}Output packets: {}\n", at("out.pcap").display()))?)
    }
}
