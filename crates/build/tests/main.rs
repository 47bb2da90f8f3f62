//! Tests of NetFilters, options, generated code and diagnostics.

mod clone_options;
mod common;
mod file_errors;
mod filter_errors;
mod generated;
mod meaning;
mod method_errors;
mod paper;
mod placed;
mod text;
mod text_errors;
