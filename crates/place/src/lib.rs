//! Path selection inside hosts: each message takes the path, over CPU or accelerator, that finishes it sooner (LEO).
//!
//! ```text
//! hardware.yaml ─┐
//! hardware.yaml ─┼─ model ── path ── select ── context ── device
//! app.yaml ──────┘             └──── exact
//! ```
//!
//! [`model`] reads the hardware of both hosts and the needs of an application's requests (LEO §III-A). [`path`] maps
//! the application's dataflows to the hosts, once and in advance: traverse time and toll of each path. [`select`]
//! selects the path of each request, and keeps requests of one address or message in order (§III-B2). [`exact`]
//! computes the best paths for a known sequence of requests (§III-B1).
//!
//! These four modules do no I/O and read no clock, nor does [`explain`], the log of selections with their reasons;
//! none of them needs the feature `host`. The [`admin_socket`] serves that log to operators. [`device`] has the
//! devices that execute requests, and [`context`] the API for applications (Table II). [`reduce`] is all-reduce among
//! the processes of one host.

#![warn(missing_docs)]

#[cfg(unix)]
pub mod admin_socket;
#[cfg(feature = "host")]
pub mod context;
#[cfg(feature = "host")]
pub mod device;
pub mod exact;
pub mod explain;
pub mod model;
mod model_error;
pub mod path;
#[cfg(all(target_os = "linux", feature = "host"))]
pub mod reduce;
pub mod select;

pub use model::{Application, Dependency, DeviceRole, Hardware};
pub use model_error::{FilePosition, ModelError};
pub use path::{Hop, KindId, Path, PathId, Paths, Resource, ResourceId};
pub use select::{
    Config, Decision, Dispatch, LearnedTimes, PathState, Released, RequestOutcome, SelectionReason, SelectionRequest,
    SelectionStrategy, Selector, Ticket,
};
