//! Tests of NetFilters, options, generated code and diagnostics.

mod common;
mod file_errors;
mod generated;
mod meaning;
mod method_errors;
mod paper;
mod placed;
mod text;
mod text_errors;
