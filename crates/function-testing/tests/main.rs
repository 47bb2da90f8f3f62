//! Tests of network functions: the language, its compiler and the run time.

mod compiler_fuzz;
mod control_instances;
mod diagnostics;
mod equivalence;
#[cfg(feature = "mutants")]
mod equivalence_mutants;
mod floats;
mod function_size;
mod handler_host;
mod handlers;
mod header_vector_limits;
mod installer;
mod interp;
mod live;
mod mirror;
mod p4_emitter;
mod place;
mod postpone;
mod programs;
mod run;
mod scale;
mod semantics;
mod serve;
mod split;
mod split_functions;
mod xdp_emitter;
