//! Pathcall element.
