//! What tests of one program keep apart: ports, and what is measured of a process.

use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Reached only when something hangs: no test takes as long, also where the machine stands still for seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
/// Names the test that has a process of its own.
const ALONE: &str = "PATHCALL_TEST_ALONE";

/// A port that nobody has, and that the system gives to nobody who asks for any: a process that is killed finds it free
/// when it is back.
pub(crate) fn free_port() -> u16 {
    let free =
        |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok() && UdpSocket::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| rand::random_range(10_000..32_768)).find(free).expect("one of many")
}

/// Whether this is a process of the test's own. If not it is run in one, and has passed there when this returns: what it
/// measures of its process is not that of the tests beside it.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|alone| alone == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(ALONE, test).stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    println!("{}", said.concat());
    assert!(output.status.success() && said[0].contains("1 passed"), "it fails in a process of its own");
    false
}
