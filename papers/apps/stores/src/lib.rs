//! Redis and memcached as stores of the key-value application (NetClone §5.5).
//!
//! [`daemon`] starts Debian's programs, each on a socket of its own; [`redis`] and [`memcached`] are what the application
//! reads from.

pub mod daemon;
pub mod memcached;
pub mod redis;

pub use daemon::{Daemon, StoreKind};
