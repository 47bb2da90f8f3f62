//! House style, and pages that can't go stale.

mod coverage;
mod errors;
mod figures;
mod support;
mod targets;
mod tidy;
