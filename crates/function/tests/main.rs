//! The language, its compiler and what it makes.

mod budgets;
mod diagnostics;
mod floats;
mod handler_host;
mod handlers;
mod held;
#[cfg(feature = "mutants")]
mod held_mutants;
mod installer;
mod instances;
mod interp;
mod lines;
mod live;
mod meaning;
mod mirror;
mod p4_text;
mod parts;
mod place;
mod postpone;
mod programs;
mod run;
mod scale;
mod serve;
mod soup;
mod split;
mod xdp_text;
