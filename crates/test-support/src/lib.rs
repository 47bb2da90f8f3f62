//! Services, stubs and processes that Pathcall's tests share.
//!
//! [`HANG`] bounds every wait of a test, and [`loopback`] gives addresses that no other test has. With the feature
//! `services`: [`stubs`] are generated from `proto/`; [`service`] serves them with handlers that say what they saw;
//! [`store`] is a pool of servers; [`wall`] blocks UDP between a caller and its server; [`calling`] are callers of the
//! photo service, and [`element`] is a controller and an element. With the feature `certificates`: [`certificates`] are those of an authority.
//! [`process`] runs the programs of the workspace, and
//! [`application`] runs applications.

use std::time::Duration;

pub mod application;
#[cfg(feature = "services")]
pub mod calling;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "services")]
pub mod element;
pub mod loopback;
pub mod process;
#[cfg(feature = "services")]
pub mod service;
#[cfg(feature = "services")]
pub mod store;
#[cfg(feature = "services")]
pub mod stubs;
#[cfg(feature = "services")]
pub mod wall;

/// Bound on every wait of a test: a test reaches it only when it hangs. A machine that stands still for seconds, time
/// after time, does not.
pub const HANG: Duration = Duration::from_secs(120);
