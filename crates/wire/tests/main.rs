//! Tests of the wire format: layouts, round trips, damaged bytes, and the generated headers for C and P4.

#[macro_use]
mod common;
mod c_header;
mod calls;
mod delegate;
mod frames;
mod link;
mod p4_header;
mod token;
