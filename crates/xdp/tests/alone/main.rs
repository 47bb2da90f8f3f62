//! What has to be alone in its process, and better is in the kernel: tables are counted for all of it, and times taken.

#[path = "../common/mod.rs"]
mod common;
mod cost;
#[path = "../veth/hosts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hosts;
mod objects;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps other tests of this program waiting.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
