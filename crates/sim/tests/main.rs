//! Tests of the simulator: seeds of all simulations, and mutants in the code under test.

mod abilities;
mod all;
#[cfg(feature = "mutants")]
mod all_mutants;
mod clone;
#[cfg(feature = "mutants")]
mod clone_mutants;
mod delegate;
#[cfg(feature = "mutants")]
mod delegate_mutants;
mod function;
#[cfg(feature = "mutants")]
mod function_mutants;
#[cfg(feature = "mutants")]
mod mutants;
mod place;
#[cfg(feature = "mutants")]
mod place_mutants;
#[cfg(feature = "mutants")]
mod planted;
mod seeds;
mod share;
mod shrink;
