//! What tests ask before they begin: whether a testbed can be had, and a process of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::tool;

/// Variable of the environment: where it is set, a test that can't run has failed.
pub const ROOT_TESTS: &str = "PATHCALL_ROOT_TESTS";
/// Names the test that a process runs alone.
const ALONE: &str = "PATHCALL_ALONE";

/// Whether tests that need a testbed can run here; if not, prints why, in one line.
///
/// # Panics
/// If they can't although [`ROOT_TESTS`] is set, as it is in continuous integration.
#[must_use]
pub fn root_tests(test: &str) -> bool {
    let Err(error) = tool::check() else { return true };
    assert!(std::env::var_os(ROOT_TESTS).is_none(), "{test} can't run, but {ROOT_TESTS} is set: {error}");
    // Not by a macro: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "{test} is left out: {error}");
    false
}

/// Whether this process runs this test alone. Where it does not, one that does has run it by the return.
///
/// A test that measures its process begins with `if !alone("module::test") { return; }`: other tests of the same program
/// would be measured with it.
///
/// # Panics
/// If the test fails there, or there is none of this name.
#[must_use]
pub fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture"]).env(ALONE, test).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap_or_else(|error| panic!("no process for {test}: {error}"));
    let said = BufReader::new(process.stdout.take().expect("piped"));
    let mut passed = false;
    for line in said.lines().map_while(Result::ok) {
        passed |= line.starts_with("test result: ok. 1 passed");
        println!("{line}");
    }
    let status = process.wait().expect("a child of ours");
    assert!(status.success() && passed, "{test}, in a process of its own: {status}");
    false
}
