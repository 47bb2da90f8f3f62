//! The interface of place for C: programs that are compiled here.

mod example;
mod header;
