//! Pathcall control.
