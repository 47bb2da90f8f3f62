//! Support of the checks: sources, pages and their generators.
//!
//! ```text
//! docs/coverage/*.toml ─► coverage ─► docs/coverage.md      the papers' parts: code, tests, figures
//! docs/figures.toml ─┬─► figures ─► docs/figures.md         figures beside the papers' words
//! docs/bench.md ─────┘
//! sources ─► messages ─► docs/errors.md holds them all
//! ```

pub mod coverage;
pub mod figures;
pub mod messages;
pub mod tree;
