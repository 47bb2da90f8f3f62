//! Typed fields of `pathcall/types.proto`, as used by generated code.
//!
//! The generator gets `extern_path(".pathcall", "::pathcall::types")`, so a `pathcall.FPArray` in a user's message
//! becomes [`FpArray`] here (with prost's naming: `STRINTMap` is [`StrintMap`]). Any codec of such a message uses these
//! implementations, so unchanged stubs get the fast ones: floating-point arrays are copied block by block, integer
//! arrays are coded through a small buffer, and nothing is decoded value by value through [`Buf`]. The bytes are those
//! of stock prost, and every encoding that protobuf allows is accepted: packed, unpacked, packed in several pieces, and
//! any mixture.

use std::collections::HashMap;

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message, Name};

#[cfg(feature = "grpc")]
mod codec;
mod packed;

#[cfg(feature = "grpc")]
pub use codec::{Codec, WholeEncoder};

/// Integers, added lane by lane (`IntArray`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IntArray {
    /// Values; their keys are the indices.
    pub data: Vec<i64>,
}

/// Floating-point numbers, quantised by the filter's `Precision` (`FPArray`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FpArray {
    /// Values; their keys are the indices.
    pub data: Vec<f64>,
}

/// [`FpArray`] in single precision: half the bytes in a plain message (`FPArray32`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FpArray32 {
    /// Values; their keys are the indices.
    pub data: Vec<f32>,
}

/// String keys, integer values (`STRINTMap`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct StrintMap {
    /// Key-value pairs.
    #[prost(map = "string, sint64", tag = "1")]
    pub map: HashMap<String, i64>,
}

/// String keys, floating-point values (`STRFPMap`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct StrfpMap {
    /// Key-value pairs.
    #[prost(map = "string, double", tag = "1")]
    pub map: HashMap<String, f64>,
}

/// Integer keys, integer values (`INTINTMap`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct IntintMap {
    /// Key-value pairs.
    #[prost(map = "sint64, sint64", tag = "1")]
    pub map: HashMap<i64, i64>,
}

/// Integer keys, floating-point values (`INTFPMap`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct IntfpMap {
    /// Key-value pairs.
    #[prost(map = "sint64, double", tag = "1")]
    pub map: HashMap<i64, f64>,
}

/// One integer: an array of length one (`IntValue`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct IntValue {
    /// Value.
    #[prost(sint64, tag = "1")]
    pub value: i64,
}

/// One floating-point number: an array of length one (`FPValue`).
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FpValue {
    /// Value.
    #[prost(double, tag = "1")]
    pub value: f64,
}

/// Number of the only field of every array: `data = 1`.
const DATA: u32 = 1;

/// Implements `Message` for an array: packed values in field 1; other fields are skipped, as protobuf requires.
macro_rules! array_message {
    ($name:ident, $values:path) => {
        impl Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                use $values as values;
                values::encode(DATA, &self.data, buf);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                use $values as values;
                match tag {
                    DATA => values::merge(wire_type, &mut self.data, buf, ctx).map_err(|mut error| {
                        error.push(stringify!($name), "data");
                        error
                    }),
                    _ => prost::encoding::skip_field(wire_type, tag, buf, ctx),
                }
            }

            fn encoded_len(&self) -> usize {
                use $values as values;
                values::encoded_len(DATA, &self.data)
            }

            fn clear(&mut self) {
                self.data.clear();
            }
        }
    };
}

array_message!(IntArray, packed::sint64);
array_message!(FpArray, packed::double);
array_message!(FpArray32, packed::float);

/// Implements `Name`, with the names of `types.proto`.
macro_rules! named {
    ($($rust:ident = $proto:literal),+ $(,)?) => {$(
        impl Name for $rust {
            const NAME: &'static str = $proto;
            const PACKAGE: &'static str = "pathcall";
        }
    )+};
}

named! {
    IntArray = "IntArray",
    FpArray = "FPArray",
    FpArray32 = "FPArray32",
    StrintMap = "STRINTMap",
    StrfpMap = "STRFPMap",
    IntintMap = "INTINTMap",
    IntfpMap = "INTFPMap",
    IntValue = "IntValue",
    FpValue = "FPValue",
}
