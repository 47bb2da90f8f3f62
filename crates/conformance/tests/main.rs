//! Executions of the switch program, held to the reference.

mod corpus;
mod decode;
mod depth;
mod differ;
#[cfg(feature = "mutants")]
mod mutants;
mod p4;
mod random;
