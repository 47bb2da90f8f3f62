//! Chunks of files as they travel: a head that says what they are and how they are packed, and their bytes.
//!
//! ```text
//! plain chunk ── pack (words, lz4) ──▶ packed chunk ── unpack ──▶ plain chunk
//! ```
//!
//! [`head`] is what each chunk begins with. [`words`] packs 32-bit words, block by block, so that a device packs and
//! unpacks them with a kernel; [`lz4`] packs anything, in blocks that a kernel unpacks each by itself. What neither makes
//! shorter stays as it is. [`kernel`] is the same in OpenCL C, bit for bit.
//!
//! What is unpacked may come from anywhere: every length is checked, nothing panics, and what is allocated is as long as
//! the caller's room.

pub mod head;
pub mod kernel;
pub mod lz4;
pub mod words;

pub use head::{ChunkError, Form, HEAD, Head, RAW_MAX};

/// How a chunk is to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// 32-bit words: what processors and devices do alike.
    #[default]
    Words,
    /// Any bytes.
    Lz4,
}

impl Codec {
    /// As it is written: `words`, `lz4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Lz4 => "lz4",
        }
    }
}

impl std::str::FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Words, Self::Lz4];
        let found = all.into_iter().find(|codec| codec.name() == text);
        found.ok_or_else(|| format!("`{text}` is no codec: expected words or lz4"))
    }
}

/// Packs a plain chunk into `to`, which has room for as many bytes: how long it is then, never longer than it was.
///
/// # Errors
/// [`ChunkError`]: it is no plain chunk, or there is no room for it.
pub fn pack(codec: Codec, chunk: &[u8], to: &mut [u8]) -> Result<usize, ChunkError> {
    let head = Head::parse(chunk)?;
    if head.form != Form::Plain {
        return Err(ChunkError::Form { got: head.form as u8, expected: "a plain chunk" });
    }
    let raw = &chunk[HEAD..];
    if raw.len() != head.raw as usize {
        return Err(ChunkError::Length { got: raw.len(), expected: head.raw as usize });
    }
    let to = to.get_mut(..chunk.len()).ok_or(ChunkError::Room { needed: chunk.len() })?;
    let (form, packed) = match codec {
        Codec::Words => (Form::Words, words::pack(raw, &mut to[HEAD..])),
        Codec::Lz4 => (Form::Lz4, lz4::pack(raw, &mut to[HEAD..])),
    };
    let (form, packed) = match packed {
        Some(packed) => (form, packed),
        None => {
            to[HEAD..].copy_from_slice(raw);
            (Form::Stored, raw.len())
        }
    };
    to[..HEAD].copy_from_slice(&chunk[..HEAD]);
    to[head::FORM_AT] = form as u8;
    Ok(HEAD + packed)
}

/// Unpacks a chunk into `to`, which has room for its head and its bytes: how long it is then.
///
/// # Errors
/// [`ChunkError`]: it is not what packing gives, or there is no room for it. Its checksum is not looked at; see
/// [`check`].
pub fn unpack(chunk: &[u8], to: &mut [u8]) -> Result<usize, ChunkError> {
    let head = Head::parse(chunk)?;
    let whole = HEAD + head.raw as usize;
    let to = to.get_mut(..whole).ok_or(ChunkError::Room { needed: whole })?;
    let (packed, raw) = (&chunk[HEAD..], &mut to[HEAD..]);
    match head.form {
        Form::Plain => return Err(ChunkError::Form { got: Form::Plain as u8, expected: "a packed chunk" }),
        Form::Stored if packed.len() == raw.len() => raw.copy_from_slice(packed),
        Form::Stored => return Err(ChunkError::Length { got: packed.len(), expected: raw.len() }),
        Form::Words => words::unpack(packed, raw)?,
        Form::Lz4 => lz4::unpack(packed, raw)?,
    }
    to[..HEAD].copy_from_slice(&chunk[..HEAD]);
    to[head::FORM_AT] = Form::Plain as u8;
    Ok(whole)
}

/// Holds a plain chunk against its checksum: its head, and its bytes.
///
/// # Errors
/// [`ChunkError`]: it is no plain chunk, or its bytes are others than its head says.
pub fn check(chunk: &[u8]) -> Result<(Head, &[u8]), ChunkError> {
    let head = Head::parse(chunk)?;
    if head.form != Form::Plain {
        return Err(ChunkError::Form { got: head.form as u8, expected: "a plain chunk" });
    }
    let raw = &chunk[HEAD..];
    if raw.len() != head.raw as usize {
        return Err(ChunkError::Length { got: raw.len(), expected: head.raw as usize });
    }
    let sum = crc32fast::hash(raw);
    if sum != head.sum {
        return Err(ChunkError::Sum { file: head.file, chunk: head.index, got: sum, expected: head.sum });
    }
    Ok((head, raw))
}

/// A plain chunk with its head and checksum.
///
/// # Panics
/// If it has more than [`RAW_MAX`] bytes.
#[must_use]
pub fn plain(file: u64, version: u64, index: u32, count: u32, raw: &[u8]) -> Vec<u8> {
    assert!(raw.len() <= RAW_MAX, "a chunk of {} bytes", raw.len());
    let raw_bytes = raw.len() as u32;
    let head = Head { form: Form::Plain, file, version, index, count, raw: raw_bytes, sum: crc32fast::hash(raw) };
    let mut chunk = Vec::with_capacity(HEAD + raw.len());
    chunk.extend(head.emit());
    chunk.extend_from_slice(raw);
    chunk
}
