//! Pathcall endpoint.
