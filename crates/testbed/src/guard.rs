//! Guard process of a testbed: deletes the testbed when its owner ends in any way.
//!
//! The guard is a shell that waits for the end of a pipe whose other end the owner holds. When the owner closes the
//! pipe, or ends in any way (Ctrl-C, a panic, `kill -9`), the guard ends all processes in the testbed's namespaces and
//! deletes the namespaces with all their interfaces, rules and queues.
//!
//! While it runs, the guard holds a listening socket named after the testbed. No connection is accepted there; the end
//! of the socket tells connected processes that the guard has finished and the testbed's name is free.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::tool;

/// Longest wait for a guard, which gives a process that can't be killed five seconds.
const GUARD_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Shell script that deletes the namespaces in its arguments. A process that can't be killed (hanging in the kernel)
/// gets five seconds.
const TEAR_DOWN: &str = r#"
tear_down() {
  for ns in "$@"; do
    tries=0
    while pids=$(ip netns pids "$ns" 2>/dev/null) && [ -n "$pids" ] && [ $tries -lt 100 ]; do
      kill -9 $pids 2>/dev/null
      tries=$((tries + 1))
      [ $tries -lt 10 ] || sleep 0.05
    done
  done
  for ns in "$@"; do
    [ -e "/run/netns/$ns" ] || continue
    # Two may be at it: whoever takes the bed down, and the guard of the owner that this has killed.
    if said=$(ip netns delete "$ns" 2>&1) || [ ! -e "/run/netns/$ns" ]; then continue; fi
    echo "$said" >&2
    failed=1
  done
}
"#;

/// Shell script that waits for the owner. A line on the pipe means that the testbed is to stay, or that its owner takes
/// it down. Without a line, the owner has died, and a program that it had started may still build for a moment.
const WAIT: &str = r#"
trap '' INT TERM HUP PIPE
if read -r word; then
  [ "$word" != keep ] || exit 0
else
  tear_down "$@"
  sleep 1
fi
"#;

const FINISH: &str = r#"
tear_down "$@"
exit ${failed:-0}
"#;

/// Guard of a testbed, which deletes the namespaces on drop at the latest.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Option<Child>,
}

impl Guard {
    /// Starts the guard, after the guard of an earlier testbed of this name has ended.
    pub(crate) fn start(bed: &str, namespaces: &[String]) -> Result<Self, Error> {
        let failed = || Error::io("starting the guard of the testbed");
        let held = match held(bed).and_then(|at| UnixListener::bind_addr(&at)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                wait_for_guard(bed);
                held(bed).and_then(|at| UnixListener::bind_addr(&at)).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => Error::AlreadyUp { bed: bed.to_owned() },
                    _ => failed()(error),
                })?
            }
            other => other.map_err(failed())?,
        };
        let mut command = tool::command("sh");
        command.args(["-c", &[TEAR_DOWN, WAIT, FINISH].concat(), "pathcall-testbed-guard"]).args(namespaces);
        // Separate process group, so that Ctrl-C does not reach the guard.
        command.process_group(0).stdin(Stdio::piped()).stdout(OwnedFd::from(held)).stderr(Stdio::piped());
        let shell = command.spawn().map_err(failed())?;
        Ok(Self { shell: Some(shell) })
    }

    /// Ends the guard without deleting anything.
    pub(crate) fn dismiss(mut self) {
        let Some(mut shell) = self.shell.take() else { return };
        // The guard reads this line or has been killed: either way it deletes nothing.
        let _ = tell(&mut shell, "keep\n");
        let _ = shell.wait();
    }

    /// Deletes everything, and returns when it is gone.
    pub(crate) fn finish(mut self, bed: &str) -> Result<(), Error> {
        self.end(bed)
    }

    fn end(&mut self, bed: &str) -> Result<(), Error> {
        let Some(mut shell) = self.shell.take() else { return Ok(()) };
        // A killed guard does not read this line; its exit status shows it.
        let _ = tell(&mut shell, "down\n");
        let output = shell.wait_with_output().map_err(Error::io("waiting for the guard of the testbed"))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(Error::Tool { program: "taking it down", place: bed.to_owned(), reason })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.end("a testbed") {
            eprintln!("pathcall: {error}");
        }
    }
}

/// Writes the final line to the guard.
fn tell(shell: &mut Child, word: &str) -> io::Result<()> {
    shell.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(word.as_bytes()))
}

/// Deletes the namespaces of a testbed whose owner is gone or has left it.
pub(crate) fn tear_down(bed: &str, namespaces: &[String]) -> Result<(), Error> {
    let mut command = tool::command("sh");
    command.args(["-c", &[TEAR_DOWN, FINISH].concat(), "pathcall-testbed-down"]).args(namespaces);
    tool::output("taking it down", bed, &mut command)?;
    wait_for_guard(bed);
    Ok(())
}

/// Name of the guard's listening socket.
fn held(bed: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("pathcall-testbed-{bed}"))
}

/// Waits until no guard of the testbed runs, or for some seconds if its owner still exists.
fn wait_for_guard(bed: &str) {
    let Ok(mut guard) = held(bed).and_then(|at| UnixStream::connect_addr(&at)) else { return };
    let _ = guard.set_read_timeout(Some(GUARD_ENDS_WITHIN));
    // The guard sends nothing: the read returns at its end or on time-out.
    let _ = guard.read(&mut [0]);
}
