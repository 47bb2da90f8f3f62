//! Tests of an element on real sockets, with controllers and hosts of the tests.

mod calls;
mod common;
mod control;
mod forwarding;
mod hedges;
mod racks;
mod registration;
mod tokens;
