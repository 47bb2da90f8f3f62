//! What a chunk begins with.
//!
//! | bytes | what | |
//! |---|---|---|
//! | 0–3 | `PCF1` | |
//! | 4 | form | how its bytes are packed: [`Form`] |
//! | 5–7 | 0 | |
//! | 8–15 | file | which file |
//! | 16–23 | version | of the file: a later one is greater |
//! | 24–27 | index | which chunk of it, from 0 |
//! | 28–31 | count | chunks that the file has |
//! | 32–35 | raw | bytes that the chunk has when it is not packed |
//! | 36–39 | sum | CRC-32 of those bytes |
//! | 40–47 | 0 | so that what follows is where a device reads it best |
//!
//! Big-endian.

/// Bytes of a head.
pub const HEAD: usize = 48;
/// Bytes of a chunk that is not packed, at most.
pub const RAW_MAX: usize = 16 << 20;
/// Where the form is: all of a head that packing changes.
pub const FORM_AT: usize = 4;
const MAGIC: &[u8; 4] = b"PCF1";

/// How a chunk's bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// Not at all: as it is before.
    Plain = 0,
    /// As they are, for nothing makes them shorter.
    Stored = 1,
    /// By [`lz4`](crate::lz4).
    Lz4 = 2,
    /// By [`words`](crate::words).
    Words = 3,
}

/// A chunk's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How it is packed.
    pub form: Form,
    /// Which file.
    pub file: u64,
    /// Of the file.
    pub version: u64,
    /// Which of its chunks.
    pub index: u32,
    /// How many chunks the file has.
    pub count: u32,
    /// Bytes that it has when it is not packed.
    pub raw: u32,
    /// CRC-32 of them.
    pub sum: u32,
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It is too short for a head, or does not begin as one.
    #[error("no chunk: {got} bytes that do not begin with PCF1 and a head of {HEAD} bytes")]
    NoHead {
        /// Its bytes.
        got: usize,
    },
    /// Another form.
    #[error("a chunk of form {got}, expected {expected}")]
    Form {
        /// The form.
        got: u8,
        /// What it should be.
        expected: &'static str,
    },
    /// Its file has fewer chunks.
    #[error("chunk {index} of a file with {count}")]
    Index {
        /// Which.
        index: u32,
        /// How many there are.
        count: u32,
    },
    /// It has more or fewer bytes than it should.
    #[error("a chunk with {got} bytes after its head, expected {expected}")]
    Length {
        /// Bytes that it has.
        got: usize,
        /// Bytes that it should have.
        expected: usize,
    },
    /// Its bytes are more than there is room for.
    #[error("no room for a chunk that takes {needed} bytes")]
    Room {
        /// Bytes that are needed.
        needed: usize,
    },
    /// What is packed is not what packing gives.
    #[error("block {block} of a chunk is not what packing gives")]
    Block {
        /// Which.
        block: usize,
    },
    /// Its bytes are others.
    #[error("chunk {chunk} of file {file} has the checksum {got:08x}, expected {expected:08x}")]
    Sum {
        /// The file.
        file: u64,
        /// Which of its chunks.
        chunk: u32,
        /// That of its bytes.
        got: u32,
        /// That in its head.
        expected: u32,
    },
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    /// [`ChunkError`]: it is none.
    pub fn parse(chunk: &[u8]) -> Result<Self, ChunkError> {
        let no_head = ChunkError::NoHead { got: chunk.len() };
        let head: &[u8; HEAD] = chunk.first_chunk().ok_or(no_head.clone())?;
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
            return Err(ChunkError::Room { needed: HEAD + raw as usize });
        }
        Ok(Self { form, file: long(8), version: long(16), index, count, raw, sum: short(36) })
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
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
