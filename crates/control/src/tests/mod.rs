//! Tests of the controller through its gRPC service.

mod common;
mod controller;
