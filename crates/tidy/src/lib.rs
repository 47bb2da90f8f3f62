//! The house style as a test: see `tests/tidy.rs`.
