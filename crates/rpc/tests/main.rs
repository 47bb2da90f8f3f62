//! Calls through stubs, channels and servers; what is measured as a whole process has a target of its own.

mod addresses;
mod authentication;
mod calls;
mod carried;
mod cloned;
mod cloned_element;
mod cloned_members;
mod cloned_unreached;
mod cloned_workers;
#[cfg(feature = "gzip")]
mod compressed;
mod controller;
mod cut;
mod deadlines;
mod delegated;
mod existing;
mod forsaken;
mod given_up;
mod joining;
mod late;
mod message;
mod named;
#[cfg(feature = "otel")]
mod otel;
mod placed;
mod placed_delegated;
mod registering;
mod shadow;
mod shutdown;
