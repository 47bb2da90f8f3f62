//! The interface of place for C: programs that are compiled here.

mod error;
mod example;
mod header;
