//! Endpoints held to one another, without a network unless a test says so.

mod books;
mod clone_driver;
mod congestion;
mod delegate;
mod evict;
mod failed;
mod harvest;
mod hostile;
mod inline;
mod key_memory;
mod link;
mod locks;
mod node;
mod node_key;
mod rings;
#[cfg(target_os = "linux")]
mod rings_flat;
mod rounds;
mod shadow;
mod streams;
mod token;
mod votes;
