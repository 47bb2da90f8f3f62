//! Models of the papers' experiments: the product's real state machines in virtual time, on beds like the papers'.
//!
//! | module | paper | what is real | what it says |
//! |---|---|---|---|
//! | [`caching`] | NetRPC §6.4 | map's endpoints, switch program | which words get an element's registers |
//! | [`clone`] | NetClone §5 | callers, servers, coordinator, switch program | latencies over load |
//! | [`delegate`] | DPC ch. 6 | callers, workers, their sessions | messages, bytes and times of calls that are passed on |
//! | [`function`] | CLIP §VII-B | placement of entries | packets that match in the element, reports, latencies |
//! | [`place`] | LEO §V | the selector of paths | latencies and throughput over load |
//!
//! A run is the same each time: time is virtual, chance comes from a seed. Hosts take the times that a paper gives; what it
//! does not give is assumed, and named where it is. [`Histogram`] counts latencies, [`zipf`] draws keys.

#![warn(missing_docs)]

pub mod caching;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod place;
pub mod zipf;

mod histogram;

pub use histogram::Histogram;
