//! NetFilters, options and what is generated of them; each mistake gets its words.

mod common;
mod file_errors;
mod generated;
mod meaning;
mod method_errors;
mod paper;
mod placed;
mod text;
mod text_errors;
