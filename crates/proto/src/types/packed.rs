//! Bulk codec of packed repeated numbers: the same three functions as prost's own modules (`prost::encoding::double`
//! and so on), and the same bytes, but several times faster.
//!
//! Encoding goes through a block on the stack, so the output buffer is extended once per block instead of once per
//! value. Decoding reads directly from each contiguous piece of the input. A value across two pieces, and malformed
//! input, is left to prost, whose errors are returned. Memory is allocated for values that have arrived, never for an
//! announced length.

use bytes::{Buf, BufMut};
use prost::DecodeError;
use prost::encoding::{self, DecodeContext, WireType};

/// Size of the block for encoding, which stays in the first-level cache.
const BLOCK: usize = 4096;

macro_rules! fixed {
    ($name:ident, $ty:ty, $wire:ident) => {
        pub(super) mod $name {
            use super::*;
            use encoding::$name as stock;

            const WIDTH: usize = size_of::<$ty>();

            pub(in crate::types) fn encoded_len(tag: u32, values: &[$ty]) -> usize {
                stock::encoded_len_packed(tag, values)
            }

            pub(in crate::types) fn encode(tag: u32, values: &[$ty], buf: &mut impl BufMut) {
                if values.is_empty() {
                    return;
                }
                encoding::encode_key(tag, WireType::LengthDelimited, buf);
                encoding::encode_varint((values.len() * WIDTH) as u64, buf);
                let mut block = [0; BLOCK];
                for values in values.chunks(BLOCK / WIDTH) {
                    for (slot, value) in block.as_chunks_mut::<WIDTH>().0.iter_mut().zip(values) {
                        *slot = value.to_le_bytes();
                    }
                    buf.put_slice(&block[..values.len() * WIDTH]);
                }
            }

            pub(in crate::types) fn merge(
                wire_type: WireType,
                values: &mut Vec<$ty>,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                if wire_type != WireType::LengthDelimited {
                    return stock::merge_repeated(wire_type, values, buf, ctx);
                }
                let (mut left, short) = packed_length(buf)?;
                while left >= WIDTH {
                    let piece = buf.chunk();
                    let bytes = piece.len().min(left) / WIDTH * WIDTH;
                    if bytes == 0 {
                        read_one(values, buf, ctx.clone())?;
                        left -= WIDTH;
                        continue;
                    }
                    values.extend(piece[..bytes].as_chunks().0.iter().map(|value| <$ty>::from_le_bytes(*value)));
                    buf.advance(bytes);
                    left -= bytes;
                }
                if left > 0 || short { read_one(values, &mut (&mut *buf).take(left), ctx) } else { Ok(()) }
            }

            /// Reads one value with prost: it may lie across two pieces or be incomplete.
            fn read_one(values: &mut Vec<$ty>, buf: &mut impl Buf, ctx: DecodeContext) -> Result<(), DecodeError> {
                stock::merge_repeated(WireType::$wire, values, buf, ctx)
            }
        }
    };
}

fixed!(double, f64, SixtyFourBit);
fixed!(float, f32, ThirtyTwoBit);

/// Zigzag varints.
pub(super) mod sint64 {
    use super::*;
    use encoding::sint64 as stock;

    /// Bytes of the longest varint.
    const LONGEST: usize = 10;

    pub(in crate::types) fn encoded_len(tag: u32, values: &[i64]) -> usize {
        stock::encoded_len_packed(tag, values)
    }

    pub(in crate::types) fn encode(tag: u32, values: &[i64], buf: &mut impl BufMut) {
        if values.is_empty() {
            return;
        }
        encoding::encode_key(tag, WireType::LengthDelimited, buf);
        let len: usize = values.iter().map(|value| encoding::encoded_len_varint(zigzag(*value))).sum();
        encoding::encode_varint(len as u64, buf);
        let mut block = [0; BLOCK];
        for values in values.chunks(BLOCK / LONGEST) {
            let mut at = 0;
            for value in values {
                let mut rest = zigzag(*value);
                while rest >= 0x80 {
                    block[at] = rest as u8 | 0x80;
                    rest >>= 7;
                    at += 1;
                }
                block[at] = rest as u8;
                at += 1;
            }
            buf.put_slice(&block[..at]);
        }
    }

    pub(in crate::types) fn merge(
        wire_type: WireType,
        values: &mut Vec<i64>,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if wire_type != WireType::LengthDelimited {
            return stock::merge_repeated(wire_type, values, buf, ctx);
        }
        let (mut left, short) = packed_length(buf)?;
        while left > 0 {
            let piece = &buf.chunk()[..buf.chunk().len().min(left)];
            // Each varint has one last byte, with its top bit clear.
            values.reserve(piece.iter().filter(|byte| **byte < 0x80).count());
            let mut at = 0;
            while let Some((value, len)) = complete_varint(&piece[at..]) {
                values.push(unzigzag(value));
                at += len;
            }
            buf.advance(at);
            left -= at;
            if left > 0 && at == 0 {
                // Across two pieces, past the announced end, or too long.
                let mut rest = (&mut *buf).take(left);
                stock::merge_repeated(WireType::Varint, values, &mut rest, ctx.clone())?;
                left = rest.remaining();
            }
        }
        if short { stock::merge_repeated(WireType::Varint, values, &mut (&mut *buf).take(0), ctx) } else { Ok(()) }
    }

    /// Varint at the front and its length, if complete and within 64 bits.
    #[inline]
    fn complete_varint(bytes: &[u8]) -> Option<(u64, usize)> {
        let mut value = 0;
        for (i, byte) in bytes.iter().take(LONGEST).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                // The tenth byte has only one bit of the value.
                return (i + 1 < LONGEST || *byte < 2).then_some((value, i + 1));
            }
        }
        None
    }

    fn zigzag(value: i64) -> u64 {
        ((value << 1) ^ (value >> 63)) as u64
    }

    fn unzigzag(value: u64) -> i64 {
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }
}

/// Reads the length of a packed field. Returns the available bytes, and whether they are fewer than announced.
fn packed_length(buf: &mut impl Buf) -> Result<(usize, bool), DecodeError> {
    let len = encoding::decode_varint(buf)?;
    Ok(match usize::try_from(len) {
        Ok(len) if len <= buf.remaining() => (len, false),
        _ => (buf.remaining(), true),
    })
}
