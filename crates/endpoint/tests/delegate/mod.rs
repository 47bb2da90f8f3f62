//! Callers and workers on a network that loses nothing unless a test says so: one mechanism each.

mod calls;
mod failing;
mod long;
mod net;
mod once;
mod silent;
