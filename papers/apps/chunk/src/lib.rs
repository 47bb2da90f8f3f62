//! Chunks of files on the network: a header, and the bytes, packed or plain.
//!
//! ```text
//! plain chunk ── pack (words, lz4) ──▶ packed chunk ── unpack ──▶ plain chunk
//! ```
//!
//! [`header`] is the header of each chunk. [`words`] packs 32-bit words in blocks that a device packs and unpacks with
//! a kernel. [`lz4`] packs any bytes, in blocks that a kernel unpacks independently. Data that neither codec makes
//! shorter is stored plain. [`kernel`] has the codecs in OpenCL C, with bit-identical results.
//!
//! Input of `unpack` may come from any sender: every length is checked, nothing panics, and allocations are limited by
//! the caller's buffer.

pub mod header;
pub mod kernel;
pub mod lz4;
pub mod words;

pub use header::{ChunkError, ChunkHeader, Form, HEADER_LEN, RAW_MAX};

/// Codec of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// 32-bit words, packed by processors and devices.
    #[default]
    Words,
    /// Any bytes, by LZ4.
    Lz4,
}

impl Codec {
    /// Name of the codec: `words`, `lz4`.
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

/// Packs a plain chunk into `to`, which is at least as long as the chunk; returns the packed length, which never
/// exceeds the plain one.
///
/// # Errors
/// Returns a [`ChunkError`] if the chunk is not plain, or if `to` is too short.
pub fn pack(codec: Codec, chunk: &[u8], to: &mut [u8]) -> Result<usize, ChunkError> {
    let head = ChunkHeader::parse(chunk)?;
    if head.form != Form::Plain {
        return Err(ChunkError::Form { got: head.form as u8, expected: "a plain chunk" });
    }
    let raw = &chunk[HEADER_LEN..];
    if raw.len() != head.raw as usize {
        return Err(ChunkError::Length { got: raw.len(), expected: head.raw as usize });
    }
    let to = to.get_mut(..chunk.len()).ok_or(ChunkError::Room { needed: chunk.len() })?;
    let (form, packed) = match codec {
        Codec::Words => (Form::Words, words::pack(raw, &mut to[HEADER_LEN..])),
        Codec::Lz4 => (Form::Lz4, lz4::pack(raw, &mut to[HEADER_LEN..])),
    };
    let (form, packed) = match packed {
        Some(packed) => (form, packed),
        None => {
            to[HEADER_LEN..].copy_from_slice(raw);
            (Form::Stored, raw.len())
        }
    };
    to[..HEADER_LEN].copy_from_slice(&chunk[..HEADER_LEN]);
    to[header::FORM_AT] = form as u8;
    Ok(HEADER_LEN + packed)
}

/// Unpacks a chunk into `to`, which has room for the header and the bytes; returns the unpacked length.
///
/// # Errors
/// Returns a [`ChunkError`] if the packed data is malformed, or if `to` is too short. The checksum is not verified; see
/// [`check`].
pub fn unpack(chunk: &[u8], to: &mut [u8]) -> Result<usize, ChunkError> {
    let head = ChunkHeader::parse(chunk)?;
    let whole = HEADER_LEN + head.raw as usize;
    let to = to.get_mut(..whole).ok_or(ChunkError::Room { needed: whole })?;
    let (packed, raw) = (&chunk[HEADER_LEN..], &mut to[HEADER_LEN..]);
    match head.form {
        Form::Plain => return Err(ChunkError::Form { got: Form::Plain as u8, expected: "a packed chunk" }),
        Form::Stored if packed.len() == raw.len() => raw.copy_from_slice(packed),
        Form::Stored => return Err(ChunkError::Length { got: packed.len(), expected: raw.len() }),
        Form::Words => words::unpack(packed, raw)?,
        Form::Lz4 => lz4::unpack(packed, raw)?,
    }
    to[..HEADER_LEN].copy_from_slice(&chunk[..HEADER_LEN]);
    to[header::FORM_AT] = Form::Plain as u8;
    Ok(whole)
}

/// Verifies the checksum of a plain chunk; returns the header and the bytes.
///
/// # Errors
/// Returns a [`ChunkError`] if the chunk is not plain, or if the checksum differs.
pub fn check(chunk: &[u8]) -> Result<(ChunkHeader, &[u8]), ChunkError> {
    let head = ChunkHeader::parse(chunk)?;
    if head.form != Form::Plain {
        return Err(ChunkError::Form { got: head.form as u8, expected: "a plain chunk" });
    }
    let raw = &chunk[HEADER_LEN..];
    if raw.len() != head.raw as usize {
        return Err(ChunkError::Length { got: raw.len(), expected: head.raw as usize });
    }
    let sum = crc32fast::hash(raw);
    if sum != head.sum {
        return Err(ChunkError::Sum { file: head.file, chunk: head.index, got: sum, expected: head.sum });
    }
    Ok((head, raw))
}

/// Creates a plain chunk with header and checksum.
///
/// # Panics
/// Panics if `raw` has more than [`RAW_MAX`] bytes.
#[must_use]
pub fn plain(file: u64, version: u64, index: u32, count: u32, raw: &[u8]) -> Vec<u8> {
    assert!(raw.len() <= RAW_MAX, "a chunk of {} bytes", raw.len());
    let raw_bytes = raw.len() as u32;
    let head =
        ChunkHeader { form: Form::Plain, file, version, index, count, raw: raw_bytes, sum: crc32fast::hash(raw) };
    let mut chunk = Vec::with_capacity(HEADER_LEN + raw.len());
    chunk.extend(head.emit());
    chunk.extend_from_slice(raw);
    chunk
}
