//! Instructions, isolation and tokens of the switch program.

mod instructions;
mod isolation;
mod token;
