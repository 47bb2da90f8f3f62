//! Standalone tests in the kernel: tests that count objects of the whole kernel, or measure times.

#[path = "../common/mod.rs"]
mod common;
mod cost;
#[path = "../veth/hosts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hosts;
mod objects;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock of the tests of this program, which run one at a time.
fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}
