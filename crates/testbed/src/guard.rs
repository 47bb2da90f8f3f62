//! Sees to it that nothing stays behind, whatever becomes of the process that has built a bed.
//!
//! The guard is a shell that waits for the end of a pipe whose other end the owner holds. When the owner
//! closes it, or ends in whichever way (Ctrl-C, a panic, `kill -9`), the guard ends all processes in the
//! bed's namespaces and deletes these, and with them all their interfaces, rules and queues.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use crate::error::Error;
use crate::tool;

/// Arguments are namespaces. A process that can't be killed (it hangs in the kernel) is given five seconds.
const TEARDOWN: &str = r#"
for ns in "$@"; do
  tries=0
  while pids=$(ip netns pids "$ns" 2>/dev/null) && [ -n "$pids" ] && [ $tries -lt 100 ]; do
    kill -9 $pids 2>/dev/null
    tries=$((tries + 1))
    [ $tries -lt 10 ] || sleep 0.05
  done
done
for ns in "$@"; do
  # Two may be at it: whoever takes the bed down, and the guard of the owner that this has killed.
  if said=$(ip netns delete "$ns" 2>&1) || [ ! -e "/run/netns/$ns" ]; then continue; fi
  echo "$said" >&2
  failed=1
done
exit ${failed:-0}
"#;

/// Before that: a word on the pipe means that the bed is to stay.
const WAIT: &str = r#"
trap '' INT TERM HUP PIPE
if read -r word; then exit 0; fi
"#;

/// Deletes namespaces when it is dropped, at the latest.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Option<Child>,
}

impl Guard {
    /// Waits from now on.
    pub(crate) fn start(namespaces: &[String]) -> Result<Self, Error> {
        let mut command = tool::command("sh");
        command.args(["-c", &[WAIT, TEARDOWN].concat(), "pathcall-testbed-guard"]).args(namespaces);
        // Of its own group, so that Ctrl-C does not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let shell = command.spawn().map_err(Error::io("starting the guard of the testbed"))?;
        Ok(Self { shell: Some(shell) })
    }

    /// Leaves everything as it is.
    pub(crate) fn dismiss(mut self) {
        let Some(mut shell) = self.shell.take() else { return };
        // It reads this, or has been killed: either way it touches nothing.
        let _ = shell.stdin.take().map(|mut stdin| stdin.write_all(b"keep\n"));
        let _ = shell.wait();
    }

    /// Deletes everything, and returns when it is gone.
    pub(crate) fn finish(mut self, bed: &str) -> Result<(), Error> {
        self.end(bed)
    }

    fn end(&mut self, bed: &str) -> Result<(), Error> {
        let Some(mut shell) = self.shell.take() else { return Ok(()) };
        drop(shell.stdin.take());
        let output = shell.wait_with_output().map_err(Error::io("waiting for the guard of the testbed"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(Error::Tool { program: "taking it down", place: bed.to_owned(), said })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.end("a testbed") {
            eprintln!("pathcall: {error}");
        }
    }
}

/// Deletes the namespaces of a bed whose owner is gone, or has left it.
pub(crate) fn tear_down(bed: &str, namespaces: &[String]) -> Result<(), Error> {
    let mut command = tool::command("sh");
    command.args(["-c", TEARDOWN, "pathcall-testbed-down"]).args(namespaces);
    tool::output("taking it down", bed, &mut command).map(|_| ())
}
