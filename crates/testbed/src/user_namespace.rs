//! User namespace in which an ordinary user is root, and may build testbeds.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::tool;

/// Beginning of a shell's script. Names of network namespaces are files in `/run`, which is the system's: the mount
/// namespace gets a folder of its own.
const PREPARE: &str = "mount -t tmpfs pathcall /run && ip link set dev lo up";

/// Replaces this process by the same command in new user, mount and network namespaces, in which this user is root.
/// Returns only where that is not possible; then nothing has changed.
///
/// The namespaces end with their last process. Files have the same owner as without. The network is a loopback only,
/// until a testbed is built. Programs of the kernel (BPF) can't be loaded, so that the testbed has no XDP.
pub fn enter_user_namespace() -> Error {
    let failed = |reason: String| Error::NoUserNamespace { reason };
    if let Err(error) = tool::output("unshare", "a user namespace", &mut unshare(PREPARE)) {
        return match error {
            Error::Tool { reason, .. } => failed(reason),
            other => other,
        };
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(format!("the path of this program is unknown: {error}")),
    };
    let mut command = unshare(&format!("{PREPARE} && exec \"$0\" \"$@\""));
    command.arg(program).args(std::env::args_os().skip(1)).stdin(Stdio::inherit());
    failed(command.exec().to_string())
}

/// Command of a shell script in new namespaces.
fn unshare(script: &str) -> Command {
    let mut command = tool::command("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--net", "--", "sh", "-c", script]);
    command
}
