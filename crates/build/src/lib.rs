//! Pathcall build.
