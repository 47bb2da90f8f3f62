//! Tests of `chain`.

mod crash;
mod linearizable;
mod run;
