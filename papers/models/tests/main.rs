//! Comparison of the models with the papers' figures.

mod clone;
mod clone_automatic;
mod clone_loads;
mod clone_slow;
mod delegate_cost;
mod delegate_loss;
mod drift;
mod function;
mod place;
