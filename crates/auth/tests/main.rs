//! Tests of the crate: connections between parties with certificates, configuration files, names.

mod connections;
mod files;
mod names;
