//! Tests of the drivers with sockets, shared memory and threads.

mod clone_driver;
mod link;
mod node;
mod node_key;
mod node_polling;
mod node_shard_repeats;
mod node_shards;
mod rings;
#[cfg(target_os = "linux")]
mod rings_leaks;
mod streams;
