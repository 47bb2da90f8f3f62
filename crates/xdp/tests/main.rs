//! Tests of the switch program and of functions in the kernel. They need root and the feature `kernel`.

mod common;
mod concurrency;
mod differ;
mod fib;
mod function;
mod inline_mode;
#[cfg(feature = "planted")]
mod mistakes;
mod packets;
#[cfg(feature = "planted")]
mod planted;
mod veth;
