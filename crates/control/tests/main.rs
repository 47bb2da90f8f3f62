//! Controllers, as their clients meet them.

mod client;
mod common;
mod controller;
