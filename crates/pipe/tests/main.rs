//! Tests of pipes: the type checker, the messages that travel, and pipes of real services.

mod checker;
mod hostile;
mod model;
mod services;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use pathcall_pipe::Pipe;
use prost_reflect::DescriptorPool;

/// Path of a file, from the folder of the tests.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Path of a file of the example.
fn example(name: &str) -> PathBuf {
    file("../../../examples/pipe").join(name)
}

/// Descriptors of the example.
static SHOP: LazyLock<DescriptorPool> =
    LazyLock::new(|| pathcall_build::descriptors(&[example("shop.proto")], &[example("")]).expect("valid"));
/// Pipe of the example: `auth`, `stock`, `billing`.
static ORDER: LazyLock<Arc<Pipe>> =
    LazyLock::new(|| Arc::new(Pipe::read(&example("order.yaml")).expect("a valid pipe")));

fn order() -> Arc<Pipe> {
    Arc::clone(&ORDER)
}
