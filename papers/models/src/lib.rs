//! Models of the papers' experiments: the product's real state machines in virtual time, on hosts like the papers'.
//!
//! | module | paper | real parts | result |
//! |---|---|---|---|
//! | [`caching`] | NetRPC §6.4 | map's endpoints, switch program | share of the words with a register in the element |
//! | [`clone`] | NetClone §5 | callers, servers, coordinator, switch program | latencies over load |
//! | [`delegate`] | DPC ch. 6 | callers, workers, their sessions | messages, bytes and latencies of delegated calls |
//! | [`function`] | CLIP §VII-B | placement of entries | packets that match in the element, reports, latencies |
//! | [`gradients`] | beyond NetRPC §5.2.1 | sums of gradients in small values | accuracy of networks that are trained with them |
//! | [`place`] | LEO §V | the selector of paths | latencies and throughput over load |
//!
//! A run is deterministic: time is virtual, and random numbers come from a seed. Hosts take the times that a paper
//! gives; other times are assumed and named. [`Histogram`] counts latencies, [`zipf`] draws keys.

#![warn(missing_docs)]

pub mod caching;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod gradients;
pub mod place;
pub mod zipf;

mod histogram;

pub use histogram::Histogram;
