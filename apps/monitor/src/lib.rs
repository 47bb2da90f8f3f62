//! Packets of a capture and the flows that they are of.

pub mod capture;
pub mod flow;
pub mod generate;
