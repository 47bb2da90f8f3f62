//! Tests of the bulk codecs against messages that prost derives: same bytes, same values, and same verdict on malformed
//! input.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use pathcall_proto::types::{
    FpArray, FpArray32, FpValue, IntArray, IntValue, IntfpMap, IntintMap, StrfpMap, StrintMap,
};
use proptest::prelude::*;
use prost::{Message, Name};

#[derive(Clone, PartialEq, prost::Message)]
struct DerivedIntArray {
    #[prost(sint64, repeated, tag = "1")]
    data: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DerivedFpArray {
    #[prost(double, repeated, tag = "1")]
    data: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DerivedFpArray32 {
    #[prost(float, repeated, tag = "1")]
    data: Vec<f32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnpackedInt {
    #[prost(sint64, repeated, packed = "false", tag = "1")]
    data: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnpackedFp {
    #[prost(double, repeated, packed = "false", tag = "1")]
    data: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnpackedFp32 {
    #[prost(float, repeated, packed = "false", tag = "1")]
    data: Vec<f32>,
}

/// User's message: a typed field among others.
#[derive(Clone, PartialEq, prost::Message)]
struct Gradient {
    #[prost(message, optional, tag = "1")]
    tensor: Option<FpArray>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    counts: Option<IntArray>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DerivedGradient {
    #[prost(message, optional, tag = "1")]
    tensor: Option<DerivedFpArray>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    counts: Option<DerivedIntArray>,
}

/// Bytes in pieces of a given size, as a body arrives from the network.
struct Pieces {
    bytes: Bytes,
    size: usize,
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes[..self.size.min(self.bytes.len())]
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn bits32(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Integers of every encoded length.
fn integers() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec((any::<i64>(), 0..64u32).prop_map(|(value, shift)| value >> shift), 0..1500)
}

/// Floats from random bits, including NaNs with payloads and negative zero.
fn doubles() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(any::<u64>().prop_map(f64::from_bits), 0..1500)
}

fn floats() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..2500)
}

proptest! {
    #[test]
    fn integer_codec_matches_prost(data in integers(), size in 1..64usize) {
        let bytes = IntArray { data: data.clone() }.encode_to_vec();
        prop_assert_eq!(&bytes, &DerivedIntArray { data: data.clone() }.encode_to_vec());
        prop_assert_eq!(bytes.len(), IntArray { data: data.clone() }.encoded_len());
        let unpacked = UnpackedInt { data: data.clone() }.encode_to_vec();
        for bytes in [bytes, unpacked].map(Bytes::from) {
            prop_assert_eq!(&IntArray::decode(bytes.clone()).unwrap().data, &data);
            prop_assert_eq!(&IntArray::decode(Pieces { bytes, size }).unwrap().data, &data);
        }
    }

    #[test]
    fn double_codec_matches_prost(data in doubles(), size in 1..64usize) {
        let bytes = FpArray { data: data.clone() }.encode_to_vec();
        prop_assert_eq!(&bytes, &DerivedFpArray { data: data.clone() }.encode_to_vec());
        prop_assert_eq!(bytes.len(), FpArray { data: data.clone() }.encoded_len());
        let unpacked = UnpackedFp { data: data.clone() }.encode_to_vec();
        for bytes in [bytes, unpacked].map(Bytes::from) {
            prop_assert_eq!(bits(&FpArray::decode(bytes.clone()).unwrap().data), bits(&data));
            prop_assert_eq!(bits(&FpArray::decode(Pieces { bytes, size }).unwrap().data), bits(&data));
        }
    }

    #[test]
    fn float_codec_matches_prost(data in floats(), size in 1..64usize) {
        let bytes = FpArray32 { data: data.clone() }.encode_to_vec();
        prop_assert_eq!(&bytes, &DerivedFpArray32 { data: data.clone() }.encode_to_vec());
        prop_assert_eq!(bytes.len(), FpArray32 { data: data.clone() }.encoded_len());
        let unpacked = UnpackedFp32 { data: data.clone() }.encode_to_vec();
        for bytes in [bytes, unpacked].map(Bytes::from) {
            prop_assert_eq!(bits32(&FpArray32::decode(bytes.clone()).unwrap().data), bits32(&data));
            prop_assert_eq!(bits32(&FpArray32::decode(Pieces { bytes, size }).unwrap().data), bits32(&data));
        }
    }

    /// Packed, unpacked, packed again: values are concatenated in order (protobuf: "decoders must be able to accept
    /// multiple key-value pairs, payloads concatenated").
    #[test]
    fn split_encodings_are_concatenated(parts in prop::collection::vec((doubles(), any::<bool>()), 0..5)) {
        let mut bytes = Vec::new();
        let mut all = Vec::new();
        for (data, packed) in parts {
            all.extend(bits(&data));
            bytes.extend(if packed { DerivedFpArray { data }.encode_to_vec() } else { UnpackedFp { data }.encode_to_vec() });
        }
        prop_assert_eq!(bits(&FpArray::decode(&bytes[..]).unwrap().data), all);
    }

    /// On any input, the codec accepts and refuses the same as prost.
    #[test]
    fn malformed_bytes_get_same_verdict_as_prost(tail in prop::collection::vec(any::<u8>(), 0..40), size in 1..9usize) {
        // Field 1 packed with an arbitrary length, or arbitrary bytes.
        for bytes in [[&[0x0a][..], &tail].concat(), tail.clone()].map(Bytes::from) {
            let pieces = || Pieces { bytes: bytes.clone(), size };
            let ints = DerivedIntArray::decode(bytes.clone()).map(|twin| twin.data).ok();
            prop_assert_eq!(&IntArray::decode(bytes.clone()).map(|ours| ours.data).ok(), &ints);
            prop_assert_eq!(&IntArray::decode(pieces()).map(|ours| ours.data).ok(), &ints);
            let doubles = DerivedFpArray::decode(bytes.clone()).map(|twin| bits(&twin.data)).ok();
            prop_assert_eq!(&FpArray::decode(bytes.clone()).map(|ours| bits(&ours.data)).ok(), &doubles);
            prop_assert_eq!(&FpArray::decode(pieces()).map(|ours| bits(&ours.data)).ok(), &doubles);
            let floats = DerivedFpArray32::decode(bytes.clone()).map(|twin| bits32(&twin.data)).ok();
            prop_assert_eq!(&FpArray32::decode(bytes.clone()).map(|ours| bits32(&ours.data)).ok(), &floats);
            prop_assert_eq!(&FpArray32::decode(pieces()).map(|ours| bits32(&ours.data)).ok(), &floats);
        }
    }

    #[test]
    fn typed_fields_round_trip_in_message(data in doubles(), counts in integers(), name in ".{0,20}") {
        let ours = Gradient {
            tensor: Some(FpArray { data: data.clone() }),
            name: name.clone(),
            counts: Some(IntArray { data: counts.clone() }),
        };
        let twin = DerivedGradient { tensor: Some(DerivedFpArray { data }), name, counts: Some(DerivedIntArray { data: counts }) };
        let bytes = ours.encode_to_vec();
        prop_assert_eq!(&bytes, &twin.encode_to_vec());
        prop_assert_eq!(Gradient::decode(&bytes[..]).unwrap().encode_to_vec(), bytes);
    }

    #[test]
    fn maps_and_scalars_round_trip(
        strint: HashMap<String, i64>,
        intint: HashMap<i64, i64>,
        strfp in prop::collection::hash_map(any::<String>(), -1e9..1e9f64, 0..20),
        intfp in prop::collection::hash_map(any::<i64>(), -1e9..1e9f64, 0..20),
        int: i64,
        fp in -1e300..1e300f64,
    ) {
        fn round_trip<M: Message + Default>(message: M) -> M {
            M::decode(&message.encode_to_vec()[..]).unwrap()
        }
        prop_assert_eq!(round_trip(StrintMap { map: strint.clone() }).map, strint);
        prop_assert_eq!(round_trip(IntintMap { map: intint.clone() }).map, intint);
        prop_assert_eq!(round_trip(StrfpMap { map: strfp.clone() }).map, strfp);
        prop_assert_eq!(round_trip(IntfpMap { map: intfp.clone() }).map, intfp);
        prop_assert_eq!(round_trip(IntValue { value: int }).value, int);
        prop_assert_eq!(round_trip(FpValue { value: fp }).value, fp);
    }
}

#[test]
fn million_doubles_round_trip() {
    let data: Vec<f64> = (0..1_000_000).map(|i| f64::from(i) * 0.25 - 1e5).collect();
    let bytes = FpArray { data: data.clone() }.encode_to_vec();
    // Key, a length of four bytes, the values.
    assert_eq!(bytes.len(), 1 + 4 + 8_000_000);
    assert!(bytes == DerivedFpArray { data: data.clone() }.encode_to_vec());
    assert!(FpArray::decode(&bytes[..]).unwrap().data == data);
}

/// An announced length reserves no memory beyond the available bytes.
#[test]
fn announced_length_reserves_no_memory() {
    let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3];
    assert!(FpArray::decode(&huge[..]).is_err());
    assert!(IntArray::decode(&huge[..]).is_err());
}

#[test]
fn errors_name_message_and_field() {
    let error = FpArray::decode(&[0x0a, 8, 1, 2][..]).unwrap_err().to_string();
    assert_eq!(error, "failed to decode Protobuf message: FpArray.data: buffer underflow");
    let error = IntArray::decode(&[0x0d, 1, 2, 3, 4][..]).unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to decode Protobuf message: IntArray.data: invalid wire type: ThirtyTwoBit (expected Varint)"
    );
}

#[test]
fn type_names_match_proto_file() {
    assert_eq!(FpArray::full_name(), "pathcall.FPArray");
    assert_eq!(IntfpMap::full_name(), "pathcall.INTFPMap");
}
