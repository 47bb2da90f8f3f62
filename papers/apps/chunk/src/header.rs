//! Header of a chunk.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0–3 | `PCF1` | |
//! | 4 | form | encoding of the bytes: [`Form`] |
//! | 5–7 | 0 | |
//! | 8–15 | file | file number |
//! | 16–23 | version | version of the file; later versions are greater |
//! | 24–27 | index | index of the chunk in the file, from 0 |
//! | 28–31 | count | chunks of the file |
//! | 32–35 | raw | bytes of the unpacked chunk |
//! | 36–39 | sum | CRC-32 of the unpacked bytes |
//! | 40–47 | 0 | alignment of the data for devices |
//!
//! Big-endian.

/// Bytes of a header.
pub const HEADER_LEN: usize = 48;
/// Maximum number of bytes of an unpacked chunk.
pub const RAW_MAX: usize = 16 << 20;
/// Offset of the form, the only header field that packing changes.
pub const FORM_AT: usize = 4;
const MAGIC: &[u8; 4] = b"PCF1";

/// Encoding of a chunk's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// Not packed.
    Plain = 0,
    /// Stored unpacked, because packing does not make the bytes shorter.
    Stored = 1,
    /// Packed by [`lz4`](crate::lz4).
    Lz4 = 2,
    /// Packed by [`words`](crate::words).
    Words = 3,
}

/// Header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Encoding of the bytes.
    pub form: Form,
    /// File number.
    pub file: u64,
    /// Version of the file.
    pub version: u64,
    /// Index of the chunk in the file.
    pub index: u32,
    /// Chunks of the file.
    pub count: u32,
    /// Bytes of the unpacked chunk.
    pub raw: u32,
    /// CRC-32 of the unpacked bytes.
    pub sum: u32,
}

/// Error in a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk is too short for a header, or does not start with one.
    #[error("not a chunk: {got} bytes without PCF1 and a header of {HEADER_LEN} bytes")]
    NoHead {
        /// Bytes of the chunk.
        got: usize,
    },
    /// Unexpected form.
    #[error("chunk of form {got}, expected {expected}")]
    Form {
        /// Form of the chunk.
        got: u8,
        /// Expected form.
        expected: &'static str,
    },
    /// The index exceeds the chunks of the file.
    #[error("chunk index {index} of a file with {count} chunks")]
    Index {
        /// Index of the chunk.
        index: u32,
        /// Chunks of the file.
        count: u32,
    },
    /// Wrong number of bytes.
    #[error("chunk with {got} bytes after its header, expected {expected}")]
    Length {
        /// Bytes after the header.
        got: usize,
        /// Expected bytes.
        expected: usize,
    },
    /// The output buffer is too short.
    #[error("output buffer too short: chunk needs {needed} bytes")]
    Room {
        /// Needed bytes.
        needed: usize,
    },
    /// The packed data is malformed.
    #[error("block {block} of a chunk is malformed")]
    Block {
        /// Index of the malformed block.
        block: usize,
    },
    /// Wrong checksum.
    #[error("chunk {chunk} of file {file} has checksum {got:08x}, expected {expected:08x}")]
    Sum {
        /// File number.
        file: u64,
        /// Index of the chunk.
        chunk: u32,
        /// Checksum of the bytes.
        got: u32,
        /// Checksum in the header.
        expected: u32,
    },
}

impl ChunkHeader {
    /// Parses the header of a chunk.
    ///
    /// # Errors
    /// Returns a [`ChunkError`] if the header is invalid.
    pub fn parse(chunk: &[u8]) -> Result<Self, ChunkError> {
        let no_head = ChunkError::NoHead { got: chunk.len() };
        let head: &[u8; HEADER_LEN] = chunk.first_chunk().ok_or(no_head.clone())?;
        if &head[..4] != MAGIC || head[5..8] != [0; 3] || head[40..] != [0; 8] {
            return Err(no_head);
        }
        let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let form = match head[FORM_AT] {
            0 => Form::Plain,
            1 => Form::Stored,
            2 => Form::Lz4,
            3 => Form::Words,
            got => return Err(ChunkError::Form { got, expected: "0 to 3" }),
        };
        let (index, count, raw) = (short(24), short(28), short(32));
        if index >= count {
            return Err(ChunkError::Index { index, count });
        }
        if raw as usize > RAW_MAX {
            return Err(ChunkError::Room { needed: HEADER_LEN + raw as usize });
        }
        Ok(Self { form, file: long(8), version: long(16), index, count, raw, sum: short(36) })
    }

    /// Encodes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut head = [0; HEADER_LEN];
        head[..4].copy_from_slice(MAGIC);
        head[FORM_AT] = self.form as u8;
        head[8..16].copy_from_slice(&self.file.to_be_bytes());
        head[16..24].copy_from_slice(&self.version.to_be_bytes());
        head[24..28].copy_from_slice(&self.index.to_be_bytes());
        head[28..32].copy_from_slice(&self.count.to_be_bytes());
        head[32..36].copy_from_slice(&self.raw.to_be_bytes());
        head[36..40].copy_from_slice(&self.sum.to_be_bytes());
        head
    }
}
