//! The bench as a user runs it, and commands that the pages show.

mod pages;
mod quick;
