//! Pathcall.
