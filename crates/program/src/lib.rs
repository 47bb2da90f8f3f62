//! Pathcall program.
