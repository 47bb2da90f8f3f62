//! Tests of the switch program: instructions, isolation and tokens.

mod instructions;
mod isolation;
mod token;
