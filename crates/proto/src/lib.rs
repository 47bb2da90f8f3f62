//! Pathcall proto.
