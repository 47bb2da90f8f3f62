//! Pathcall sim.
