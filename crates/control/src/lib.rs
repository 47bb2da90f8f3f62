//! The controller.

pub mod state;
