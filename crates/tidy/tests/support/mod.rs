//! Support of the checks: sources, pages and their generators.
//!
//! ```text
//! docs/coverage/*.toml ─► coverage ─► docs/coverage.md      the papers' parts: code, tests, figures
//! docs/figures.toml ─┬─► figures ─► docs/figures.md         all rows of all figures, beside the papers' words
//! bench/*.json ──────┘
//! sources ─► messages ─► docs/errors.md holds them all
//! ```

pub mod coverage;
pub mod figures;
pub mod figures_page;
pub mod messages;
pub mod tree;
