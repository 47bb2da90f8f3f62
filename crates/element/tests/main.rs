//! An element on real sockets, with controllers and hosts of the tests' own.

mod calls;
mod common;
mod control;
mod forwarding;
mod registration;
mod tokens;
