//! Packets of a capture and their flows.

pub mod capture;
pub mod flow;
pub mod generate;
