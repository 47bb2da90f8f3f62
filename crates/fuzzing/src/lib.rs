//! Fuzz targets: each reads bytes of a hostile peer or user, and panics if an invariant is violated.
//!
//! `fuzz/` runs the targets by libFuzzer, guided by coverage (`make fuzz`). The tests of this crate run each target on
//! a fixed number of mutated samples, in the build that all tests share.

pub mod capture;
pub mod clone;
pub mod delegate;
pub mod endpoint;
pub mod filter;
pub mod function_parse;
pub mod message;
pub mod messages;
pub mod place_model;
pub mod program;
pub mod ring;
pub mod served;
pub mod wire;

/// Function that tests one input.
pub type FuzzTarget = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("capture", capture::run),
    ("clone", clone::run),
    ("delegate", delegate::run),
    ("endpoint", endpoint::run),
    ("filter", filter::run),
    ("function_parse", function_parse::run),
    ("message", message::run),
    ("messages", messages::run),
    ("place_model", place_model::run),
    ("program", program::run),
    ("ring", ring::run),
    ("served", served::run),
    ("wire", wire::run),
];
