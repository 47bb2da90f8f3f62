//! Tests of endpoints, most of them without a network.

mod clone_driver;
mod congestion;
mod delegate;
mod evict;
mod failed;
mod harvest;
mod hostile;
mod idempotency;
mod inline;
mod key_memory;
mod link;
mod locks;
mod node;
mod node_key;
mod rings;
#[cfg(target_os = "linux")]
mod rings_leaks;
mod rounds;
mod shadow;
mod streams;
mod token;
mod votes;
