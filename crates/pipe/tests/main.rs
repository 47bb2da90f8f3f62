//! Tests of pipes: the type checker, the messages that travel, and pipes of real services.

mod checker;
mod hostile;
mod model;
mod services;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pathcall_pipe::Pipe;

/// Path of a file of the tests.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Pipe of a shop: `auth`, `stock`, `billing`.
fn order() -> Arc<Pipe> {
    Arc::new(Pipe::read(&file("order.yaml")).expect("a valid pipe"))
}
