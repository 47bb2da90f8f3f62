//! Fuzz targets: each takes bytes from a hostile peer or user, and panics where a promise does not hold.
//!
//! `fuzz/` runs them by libFuzzer, guided by coverage (`make fuzz`). The test of this crate plays a bounded number of
//! damaged samples through each of them, in the build that all tests share.

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

/// One target.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: &[(&str, Target)] = &[
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
