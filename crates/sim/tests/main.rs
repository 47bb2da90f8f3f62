//! Tests of the simulator: seeds of all simulations, and mutants in the code under test.

#[cfg(feature = "mutants")]
mod mutants;
mod seeds;
mod share;
mod shrink;
