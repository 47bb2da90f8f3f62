//! Tests of executions of the switch program against the reference.

mod corpus;
mod decode;
mod differ;
mod element;
mod generator_coverage;
#[cfg(feature = "mutants")]
mod mutants;
mod p4;
mod random;
