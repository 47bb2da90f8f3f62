//! Tests of delegate callers and workers on a network without loss, unless a test simulates it.

mod calls;
mod exactly_once;
mod failures;
mod long_messages;
mod network;
mod timeouts;
