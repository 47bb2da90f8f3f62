//! Services, stubs and processes shared by the tests of Pathcall.
//!
//! [`HANG`] bounds every wait of a test, and [`loopback`] gives unique addresses. With the feature `services`:
//! `stubs` are generated from `proto/`; `service` serves them with handlers that record their calls; `store` is a
//! pool of servers; `shop` has the services of the example of a pipe; `udp_blocker` blocks UDP between a caller and its server; `photo_callers` are callers of the
//! photo service, and `element` is a controller and an element. With the feature `certificates`: `certificates`
//! issues certificates. [`process`] runs the programs of the workspace, and [`application`] runs applications.

use std::time::Duration;

pub mod application;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "services")]
pub mod element;
#[cfg(feature = "services")]
mod filter_service;
pub mod loopback;
#[cfg(feature = "services")]
pub mod photo_callers;
pub mod process;
#[cfg(feature = "services")]
pub mod service;
#[cfg(feature = "services")]
pub mod shop;
#[cfg(feature = "services")]
pub mod store;
#[cfg(feature = "services")]
pub mod stubs;
#[cfg(feature = "services")]
pub mod udp_blocker;

/// Time limit of every wait in a test, reached only by a hanging test, even if the machine stands still for seconds
/// again and again.
pub const HANG: Duration = Duration::from_secs(120);
