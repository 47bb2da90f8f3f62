//! Controllers, as their clients meet them.

mod common;
mod controller;
