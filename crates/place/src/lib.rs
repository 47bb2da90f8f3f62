//! Inside a host each message takes the path, over CPU or accelerator, that finishes it sooner (LEO).
//!
//! ```text
//! hardware.yaml ─┐
//! hardware.yaml ─┼─ model ── path ── select ── context ── device
//! app.yaml ──────┘             └──── exact
//! ```
//!
//! In the order a message meets them: [`model`] reads what the hosts of both ends are made of and what an application's
//! requests need (LEO §III-A); [`path`] lays the application's dataflows over the hosts, once, before anything runs:
//! each path's traverse time and toll; [`select`] decides for each request which path it takes, and keeps requests of
//! one address or message in order (§III-B2); [`exact`] has the best choice for a known sequence of requests (§III-B1).
//!
//! These four do no I/O and read no clock, nor does [`explain`], which remembers what was chosen and why; none of them
//! needs the feature `host`. At the [`door`] operators ask for that. [`device`] is what requests are worked on
//! with, and [`context`] what applications call (Table II). Beside them stands [`reduce`]: all-reduce among the processes
//! of one host.

#![warn(missing_docs)]

#[cfg(feature = "host")]
pub mod context;
#[cfg(feature = "host")]
pub mod device;
#[cfg(unix)]
pub mod door;
pub mod exact;
pub mod explain;
mod mistake;
pub mod model;
pub mod path;
#[cfg(all(target_os = "linux", feature = "host"))]
pub mod reduce;
pub mod select;

pub use mistake::{Mistake, Position};
pub use model::{Application, Dependency, Hardware, Role};
pub use path::{Hop, KindId, Path, PathId, Paths, Resource, ResourceId};
pub use select::{Config, Decision, Go, Outcome, PathState, Released, Request, Selector, Strategy, Ticket, Why};
