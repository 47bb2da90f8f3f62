//! Tests of `files`.

mod kernels;
mod run;
