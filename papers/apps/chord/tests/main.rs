//! Tests of `chord`.

mod find;
mod run;
