//! Distributed file system whose chunks take the path that finishes sooner (LEO §V, DFS).
//!
//! ```text
//! WRITE: plain chunk ── compress, requester ══▶ decompress, responder ── checksum ── Store
//! READ:  chunk index ═══════════════════════▶ Store ── compress, responder ══▶ unpacked and checked by the reader
//! ```
//!
//! The processor or an accelerator runs each task. With [`Codec::Words`] kernels give bit-identical results. With
//! [`Codec::Lz4`] the processor packs with LZ4, while an OpenCL device packs words and unpacks both. Each chunk
//! contains its encoding. The checksum of a chunk travels from writer to reader: a device with wrong results has
//! failed, and another path repeats the task.
//!
//! The chunks of a file form one message, which keeps its order. A version of a file is readable once all its chunks
//! are stored, and until a later version is complete: see [`store`].

pub mod answer_cache;
pub mod load;
pub mod store;
pub mod tasks;

pub use apps_chunk::Codec;
pub use load::FileLoad;
pub use store::FileStore;

/// Application file without times; the times are profiled.
pub const APPLICATION: (&str, &str) = ("files.yaml", include_str!("../files.yaml"));
/// Bytes of a file (LEO §V-A).
pub const FILE: usize = 1 << 20;
/// Bytes of a chunk (LEO §V-A).
pub const CHUNK: usize = 256 << 10;
