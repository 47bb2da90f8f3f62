//! Tests of the C interface of place: errors, header, and C programs compiled by the test.

mod error;
mod example;
mod header;
