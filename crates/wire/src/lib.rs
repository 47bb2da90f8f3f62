//! Pathcall wire.
