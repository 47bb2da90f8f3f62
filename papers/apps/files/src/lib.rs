//! A distributed file system whose chunks take whichever path is sooner (LEO §V, DFS).
//!
//! ```text
//! WRITE: plain chunk ── compress, requester ══▶ decompress, responder ── checksum ── Store
//! READ:  which chunk ═══════════════════════▶ Store ── compress, responder ══▶ unpacked and checked where it was asked for
//! ```
//!
//! Both tasks are done by the processor or by an accelerator: with [`Codec::Words`] by kernels, bit for bit alike; with
//! [`Codec::Lz4`] the processor packs with LZ4, a device of OpenCL packs words and unpacks both. Each chunk says itself how
//! it is packed. A chunk's checksum goes with it from who writes it to who reads it: a device whose bytes are wrong has
//! failed, and another path does it again.
//!
//! A file's chunks are one message, which keeps its order. A version of a file is read when all of its chunks are there,
//! and until a later one is whole: see [`store`].

pub mod load;
pub mod remembered;
pub mod store;
pub mod tasks;

pub use apps_chunk::Codec;
pub use load::Load;
pub use store::Store;

/// The application's own file: its times are profiled.
pub const APPLICATION: (&str, &str) = ("files.yaml", include_str!("../files.yaml"));
/// Bytes of a file (LEO §V-A).
pub const FILE: usize = 1 << 20;
/// Bytes of a chunk (LEO §V-A).
pub const CHUNK: usize = 256 << 10;
