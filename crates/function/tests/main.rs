//! The language, its compiler and what it makes.

mod budgets;
mod diagnostics;
mod floats;
mod handlers;
mod held;
#[cfg(feature = "mutants")]
mod held_mutants;
mod instances;
mod lines;
mod meaning;
mod parts;
mod programs;
mod soup;
