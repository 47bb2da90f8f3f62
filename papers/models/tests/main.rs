//! What the models say beside what the papers do.

mod clone;
mod delegate_cost;
mod delegate_loss;
mod drift;
mod function;
mod place;
