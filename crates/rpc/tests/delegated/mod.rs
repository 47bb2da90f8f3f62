//! Calls that servers pass on: through stubs, by callers of their own, traced, exactly once, and at their limits.

mod calls;
mod hard;
pub(crate) mod house;
mod once;
mod overload;
mod process;
mod several;
mod traces;
