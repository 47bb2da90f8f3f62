//! The switch program and functions in the kernel. They need root, and a build with the feature `kernel`.

mod common;
mod differ;
mod fib;
mod function;
#[cfg(feature = "planted")]
mod mistakes;
mod packets;
mod passing;
#[cfg(feature = "planted")]
mod planted;
mod processors;
mod veth;
