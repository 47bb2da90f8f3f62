//! Where the state machines meet the operating system.

pub mod link;
