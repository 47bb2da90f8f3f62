//! Isolation of tests in one program: free ports, and a separate process for tests that measure their process.

use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit that only a hanging test reaches, even on a machine that stands still for seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
/// Variable with the name of the test that has a process of its own.
const ALONE: &str = "PATHCALL_TEST_ALONE";

/// Free port outside the system's ephemeral range, so that a killed process finds it free after its restart.
pub(crate) fn free_port() -> u16 {
    let free =
        |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok() && UdpSocket::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| rand::random_range(10_000..32_768)).find(free).expect("a free port")
}

/// Returns true in the test's own process. Otherwise runs the test in a separate process, panics unless it passes
/// there, and returns false. So other tests do not affect what the test measures of its process.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|alone| alone == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(ALONE, test).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let printed = [output.stdout, output.stderr].map(|printed| String::from_utf8_lossy(&printed).into_owned());
    println!("{}", printed.concat());
    assert!(output.status.success() && printed[0].contains("1 passed"), "the test fails in its own process");
    false
}
