//! Checks of the house style, and of pages derived from other files.

mod coverage;
mod errors;
mod figures;
mod support;
mod targets;
mod tidy;
mod words;
