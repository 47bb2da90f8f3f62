//! Redis and memcached as stores of the key-value application (NetClone §5.5).
//!
//! [`daemon`] starts Debian's programs, each on its own socket; [`redis`] and [`memcached`] are the clients of the
//! application.

pub mod daemon;
pub mod memcached;
pub mod redis;

pub use daemon::{Daemon, StoreKind};
