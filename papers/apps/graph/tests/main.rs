//! Tests of `graph`.

mod answers;
mod run;
