//! Calls that any of several servers can answer, steered and cloned by the element.
//!
//! [`performance`] says how long they take at the paper's scale.

pub mod performance;
