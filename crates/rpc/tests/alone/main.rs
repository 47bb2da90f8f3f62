//! Tests that measure a whole process, each in a process of its own, one after the other.
#![cfg(target_os = "linux")]

mod large;
mod soak;

use std::sync::{Mutex, PoisonError};

/// As [`pathcall_testbed::alone`], while no other test of this program runs.
fn alone(test: &str) -> bool {
    static ONE: Mutex<()> = Mutex::new(());
    let _others_wait = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    pathcall_testbed::alone(test)
}
