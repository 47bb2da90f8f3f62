//! Tests of manifests, and of the codecs of typed fields.

mod manifest;
mod types;
