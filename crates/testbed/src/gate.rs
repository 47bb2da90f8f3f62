//! Tests that need a testbed: run where they can, and never left out unnoticed.

use std::io::Write;

use crate::tool;

/// Variable of the environment: where it is set, a test that can't run has failed.
pub const ROOT_TESTS: &str = "PATHCALL_ROOT_TESTS";

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
