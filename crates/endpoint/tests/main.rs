//! Tests of endpoints, without a network.

mod config;
mod congestion;
mod delegate;
mod evict;
mod failed;
mod handled;
mod harvest;
mod hostile;
mod idempotency;
mod inline;
mod key_memory;
mod lazy;
mod levels;
mod locks;
mod reads;
mod rounds;
mod shadow;
mod token;
mod votes;
