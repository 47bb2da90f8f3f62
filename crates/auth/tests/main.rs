//! Tests of the crate: connections with certificates, configuration files, names.

mod connections;
mod files;
mod names;
