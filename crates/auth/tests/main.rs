//! Tests of the crate: connections between parties with certificates, and configuration files.

mod connections;
mod files;
