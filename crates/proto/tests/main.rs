//! Manifests, and the codecs of mapped types.

mod manifest;
mod types;
