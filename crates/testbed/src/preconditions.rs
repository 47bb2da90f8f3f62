//! Preconditions of tests: the right to build testbeds, and a separate process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::tool;

/// Environment variable: if set, a test that can't run fails.
pub const ROOT_TESTS: &str = "PATHCALL_ROOT_TESTS";
/// Variable with the test that a process runs alone.
const ALONE_VARIABLE: &str = "PATHCALL_ALONE";

/// True if tests that need a testbed can run here. Otherwise prints the reason in one line.
///
/// # Panics
/// Panics if they can't run although [`ROOT_TESTS`] is set, as in continuous integration.
#[must_use]
pub fn root_tests(test: &str) -> bool {
    let Err(error) = tool::check() else { return true };
    assert!(std::env::var_os(ROOT_TESTS).is_none(), "{test} cannot run although {ROOT_TESTS} is set: {error}");
    // `eprintln!` would be captured by the test runner.
    let _ = writeln!(std::io::stderr(), "{test} is skipped: {error}");
    false
}

/// True if this process runs this test alone. Otherwise runs the test in a separate process and returns false after it.
///
/// A test that measures its process begins with `if !alone("module::test") { return; }`, so that other tests of the
/// same program are not measured with it.
///
/// # Panics
/// Panics if the test fails there, or does not exist.
#[must_use]
pub fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE_VARIABLE).is_some_and(|name| name == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture"]).env(ALONE_VARIABLE, test).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap_or_else(|error| panic!("cannot start a process for {test}: {error}"));
    let stdout = BufReader::new(process.stdout.take().expect("piped"));
    let mut passed = false;
    for line in stdout.lines().map_while(Result::ok) {
        passed |= line.starts_with("test result: ok. 1 passed");
        println!("{line}");
    }
    let status = process.wait().expect("child process");
    assert!(status.success() && passed, "{test} in its own process: {status}");
    false
}
