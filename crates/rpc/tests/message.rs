//! Property tests of typed fields: slicing an encoded message equals decoding it, for every encoding, and written
//! fields decode to their values.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{Key, Lanes};
use pathcall_proto::manifest::Shape;
use pathcall_rpc::message::fields::split;
use pathcall_rpc::message::number::Scale;
use pathcall_rpc::message::reply::{ARRAY_LANES_MAX, ReplyError, append};
use pathcall_rpc::message::typed::{TypedError, TypedFieldReader, TypedValues};
use proptest::prelude::*;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

#[derive(Clone, PartialEq, Message)]
struct Ints {
    #[prost(sint64, repeated, tag = "1")]
    data: Vec<i64>,
}
#[derive(Clone, PartialEq, Message)]
struct Doubles {
    #[prost(double, repeated, tag = "1")]
    data: Vec<f64>,
}
#[derive(Clone, PartialEq, Message)]
struct Floats {
    #[prost(float, repeated, tag = "1")]
    data: Vec<f32>,
}
#[derive(Clone, PartialEq, Message)]
struct StrInt {
    #[prost(btree_map = "string, sint64", tag = "1")]
    map: BTreeMap<String, i64>,
}
#[derive(Clone, PartialEq, Message)]
struct StrFp {
    #[prost(btree_map = "string, double", tag = "1")]
    map: BTreeMap<String, f64>,
}
#[derive(Clone, PartialEq, Message)]
struct IntInt {
    #[prost(btree_map = "sint64, sint64", tag = "1")]
    map: BTreeMap<i64, i64>,
}
#[derive(Clone, PartialEq, Message)]
struct IntFp {
    #[prost(btree_map = "sint64, double", tag = "1")]
    map: BTreeMap<i64, f64>,
}
#[derive(Clone, PartialEq, Message)]
struct Int {
    #[prost(sint64, tag = "1")]
    value: i64,
}
#[derive(Clone, PartialEq, Message)]
struct Fp {
    #[prost(double, tag = "1")]
    value: f64,
}

/// Field i + 1 is of the i-th shape.
#[derive(Clone, PartialEq, Message)]
struct Inner {
    #[prost(message, optional, tag = "1")]
    ints: Option<Ints>,
    #[prost(message, optional, tag = "2")]
    doubles: Option<Doubles>,
    #[prost(message, optional, tag = "3")]
    floats: Option<Floats>,
    #[prost(message, optional, tag = "4")]
    str_int: Option<StrInt>,
    #[prost(message, optional, tag = "5")]
    str_fp: Option<StrFp>,
    #[prost(message, optional, tag = "6")]
    int_int: Option<IntInt>,
    #[prost(message, optional, tag = "7")]
    int_fp: Option<IntFp>,
    #[prost(message, optional, tag = "8")]
    int: Option<Int>,
    #[prost(message, optional, tag = "9")]
    fp: Option<Fp>,
    #[prost(string, tag = "15")]
    note: String,
}

#[derive(Clone, PartialEq, Message)]
struct Outer {
    #[prost(int64, tag = "1")]
    number: i64,
    #[prost(message, optional, tag = "5")]
    inner: Option<Inner>,
    #[prost(bytes = "vec", tag = "20")]
    blob: Vec<u8>,
}

const PRECISION: u8 = 3;

/// Numbers of the field of this shape.
fn path(shape: Shape) -> [u32; 2] {
    [5, 1 + Shape::ALL.iter().position(|other| *other == shape).unwrap() as u32]
}

/// Typed field as pairs, taken from the decoded message; `None` if it is missing.
fn take(outer: &mut Outer, shape: Shape) -> Option<Result<Vec<(Key, i64)>, ()>> {
    fn quantise(value: impl Into<f64>) -> Result<i64, ()> {
        Scale::new(PRECISION).quantise(value.into()).ok_or(())
    }
    fn indexed(values: impl Iterator<Item = Result<i64, ()>>) -> Result<Vec<(Key, i64)>, ()> {
        (0i64..).zip(values).map(|(i, value)| Ok((i.into(), value?))).collect()
    }
    let inner = outer.inner.as_mut()?;
    Some(match shape {
        Shape::IntArray => indexed(inner.ints.take()?.data.into_iter().map(Ok)),
        Shape::FpArray => indexed(inner.doubles.take()?.data.into_iter().map(quantise)),
        Shape::FpArray32 => indexed(inner.floats.take()?.data.into_iter().map(quantise)),
        Shape::StrInt => Ok(inner.str_int.take()?.map.into_iter().map(|(k, v)| (k.as_str().into(), v)).collect()),
        Shape::StrFp => {
            inner.str_fp.take()?.map.into_iter().map(|(k, v)| Ok((k.as_str().into(), quantise(v)?))).collect()
        }
        Shape::IntInt => Ok(inner.int_int.take()?.map.into_iter().map(|(k, v)| (k.into(), v)).collect()),
        Shape::IntFp => inner.int_fp.take()?.map.into_iter().map(|(k, v)| Ok((k.into(), quantise(v)?))).collect(),
        Shape::Int => Ok(vec![(0.into(), inner.int.take()?.value)]),
        Shape::Fp => quantise(inner.fp.take()?.value).map(|value| vec![(0.into(), value)]),
    })
}

/// Sliced message: the rest, whether it has content, and the typed field.
type Sliced = (Vec<u8>, bool, Vec<(Key, i64)>);

fn slice(message: &[u8], shape: Shape) -> Result<Sliced, TypedError> {
    let (mut rest, mut reader) = (Vec::new(), TypedFieldReader::new(shape, PRECISION));
    let content = split(message, &path(shape), &mut rest, &mut |part| reader.part(part))?;
    let mut pairs = reader.into_values().into_pairs();
    if shape.is_map() {
        pairs.sort_by(|a, b| (a.0.as_int(), &a.0).cmp(&(b.0.as_int(), &b.0)));
    }
    Ok((rest, content, pairs))
}

/// Checks that slicing and decoding agree about these bytes.
fn check_against_prost(message: &[u8], shape: Shape) -> Result<(), TestCaseError> {
    let sliced = slice(message, shape);
    let Ok(mut decoded) = Outer::decode(message) else {
        return Ok(()); // Slicing looks into less, so it may accept more.
    };
    let expected = take(&mut decoded, shape).unwrap_or(Ok(Vec::new()));
    match (sliced, expected) {
        (Ok((rest, _, pairs)), Ok(expected)) => {
            prop_assert_eq!(pairs, expected);
            prop_assert_eq!(Outer::decode(&rest[..]).unwrap(), decoded);
        }
        (Err(TypedError::Number { .. }), Err(())) => {}
        // A value that cannot be quantised is refused, even if a later value replaces it.
        (Err(TypedError::Number { .. }), Ok(_)) if !shape.is_array() => {}
        // prost takes any wire type for a map's length-delimited one: what it then finds there is no entry to us, and
        // what is in a group no field.
        (Err(TypedError::Malformed(_)), Ok(_)) if shape.is_map() => {}
        (sliced, expected) => prop_assert!(false, "sliced: {sliced:?}, decoded: {expected:?}"),
    }
    Ok(())
}

fn delimited(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::Varint, &mut out);
    encode_varint(value, &mut out);
    out
}

/// Fields that are split, repeated and mixed with others, in any order.
fn pieces(piece: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Field of a value's type, with this number.
fn value(shape: Shape, number: u32) -> BoxedStrategy<Vec<u8>> {
    let fixed = move |bytes: &[u8]| {
        let mut out = Vec::new();
        let wire_type = if bytes.len() == 8 { WireType::SixtyFourBit } else { WireType::ThirtyTwoBit };
        encode_key(number, wire_type, &mut out);
        [out, bytes.to_vec()].concat()
    };
    match shape {
        Shape::FpArray32 => (-1e6f32..1e6).prop_map(move |value| fixed(&value.to_le_bytes())).boxed(),
        shape if shape.is_float() => (-1e6..1e6f64).prop_map(move |value| fixed(&value.to_le_bytes())).boxed(),
        _ => any::<u64>().prop_map(move |value| varint(number, value)).boxed(),
    }
}

/// Part of a typed field's content.
fn content(shape: Shape) -> BoxedStrategy<Vec<u8>> {
    let unknown = any::<u64>().prop_map(|value| varint(7, value));
    if shape.is_array() {
        let packed = prop::collection::vec(value(shape, 1), 0..20).prop_map(|singles| {
            delimited(1, &singles.iter().flat_map(|single| single[1..].to_vec()).collect::<Vec<_>>())
        });
        return pieces(prop_oneof![packed, value(shape, 1), unknown]).boxed();
    }
    if shape.is_scalar() {
        return pieces(prop_oneof![value(shape, 1), unknown]).boxed();
    }
    let key = if shape.has_string_keys() {
        "[ab]{0,2}".prop_map(|key| delimited(1, key.as_bytes())).boxed()
    } else {
        (0u64..6).prop_map(|key| varint(1, key)).boxed()
    };
    let entry = pieces(prop_oneof![key, value(shape, 2), unknown.clone()]);
    pieces(prop_oneof![4 => entry.prop_map(|entry| delimited(1, &entry)), 1 => unknown]).boxed()
}

/// Encoded message, and whether it has content besides the typed field.
fn message() -> impl Strategy<Value = (Shape, Vec<u8>)> {
    prop::sample::select(&Shape::ALL[..]).prop_flat_map(|shape| {
        let [outer, inner] = path(shape);
        let typed = content(shape).prop_map(move |content| delimited(inner, &content));
        let note = "[a-z]{0,5}".prop_map(|note| delimited(15, note.as_bytes()));
        let nested = pieces(prop_oneof![3 => typed, 1 => note]).prop_map(move |inner| delimited(outer, &inner));
        let number = any::<u64>().prop_map(|value| varint(1, value));
        let blob = any::<Vec<u8>>().prop_map(|blob| delimited(20, &blob));
        let group = Just(vec![0xf3, 0x01, 0x08, 0x01, 0xf4, 0x01]); // field 30 { 1: 1 }
        let all = pieces(prop_oneof![4 => nested, 1 => number, 1 => blob, 1 => group]);
        (Just(shape), all)
    })
}

fn values(shape: Shape) -> impl Strategy<Value = Vec<(Key, i64)>> {
    // Numbers within the precision of the field's type.
    let max = if shape == Shape::FpArray32 { 1_000_000i64 } else { 1_000_000_000_000 };
    let value = -max..max;
    let ints = prop::collection::btree_map(any::<i64>(), value.clone(), 0..20)
        .prop_map(|map| map.into_iter().map(|(key, value)| (key.into(), value)).collect::<Vec<(Key, i64)>>());
    let texts = prop::collection::btree_map(any::<String>(), value.clone(), 0..20)
        .prop_map(|map| map.into_iter().map(|(key, value)| (key.as_str().into(), value)).collect::<Vec<_>>());
    let indices = prop::collection::vec(value, if shape.is_scalar() { 1..2 } else { 0..300 })
        .prop_map(|values| (0i64..).map(Key::from).zip(values).collect::<Vec<_>>());
    match shape {
        shape if !shape.is_map() => indices.boxed(),
        shape if shape.has_string_keys() => texts.boxed(),
        _ => ints.boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slicing_equals_decoding((shape, message) in message()) {
        prop_assert!(Outer::decode(&message[..]).is_ok());
        prop_assert!(!matches!(slice(&message, shape), Err(TypedError::Malformed(_))));
        check_against_prost(&message, shape)?;
    }

    #[test]
    fn content_excludes_enclosing_messages((shape, message) in message()) {
        let (rest, content, _) = slice(&message, shape).unwrap();
        let mut only_typed = delimited(5, &[]);
        only_typed.extend(rest.iter());
        let without_content = rest.chunks(2).all(|field| field == delimited(5, &[]));
        prop_assert_eq!(content, !without_content, "{:02x?}", rest);
    }

    #[test]
    fn damaged_messages_never_panic(
        (shape, mut message) in message(),
        flips: Vec<(prop::sample::Index, u8)>,
        cut: prop::sample::Index,
    ) {
        for (place, byte) in flips.iter().take(4) {
            if !message.is_empty() {
                let place = place.index(message.len());
                message[place] = *byte;
            }
        }
        check_against_prost(&message, shape)?;
        if !message.is_empty() {
            message.truncate(cut.index(message.len()));
        }
        check_against_prost(&message, shape)?;
    }

    #[test]
    fn any_bytes_never_panic(bytes: Vec<u8>, shape in prop::sample::select(&Shape::ALL[..])) {
        check_against_prost(&bytes, shape)?;
        let _ = TypedFieldReader::new(shape, PRECISION).part(&bytes);
    }

    #[test]
    fn appended_values_decode(
        (shape, values) in prop::sample::select(&Shape::ALL[..]).prop_flat_map(|shape| (Just(shape), values(shape))),
        note: String,
    ) {
        let before = Outer { number: -1, inner: Some(Inner { note, ..Inner::default() }), blob: vec![1] };
        let mut message = before.encode_to_vec();
        append(&mut message, &path(shape), shape, PRECISION, &TypedValues::Pairs(values.clone())).unwrap();
        let mut decoded = Outer::decode(&message[..]).unwrap();
        prop_assert_eq!(take(&mut decoded, shape), Some(Ok(values.clone())));
        prop_assert_eq!(&decoded, &before);
        if !shape.is_map() {
            let lanes: Lanes = values.iter().map(|(_, value)| *value).collect();
            let mut again = before.encode_to_vec();
            append(&mut again, &path(shape), shape, PRECISION, &TypedValues::Lanes(lanes)).unwrap();
            prop_assert_eq!(message, again);
        }
    }
}

#[test]
fn unquantisable_number_names_its_position() {
    let error = |inner: Inner, shape| {
        let outer = Outer { inner: Some(inner), ..Outer::default() };
        slice(&outer.encode_to_vec(), shape).unwrap_err().to_string()
    };
    let doubles = Inner { doubles: Some(Doubles { data: vec![0.0, f64::NAN] }), ..Inner::default() };
    assert_eq!(
        error(doubles, Shape::FpArray),
        "index 1 holds NaN: with Precision 3, values must be finite and below 2^62 / 10^3"
    );
    let map = Inner { str_fp: Some(StrFp { map: [("a".to_owned(), 1e300)].into() }), ..Inner::default() };
    assert!(error(map, Shape::StrFp).starts_with("key \"a\" holds 1000000"));
    let scalar = Inner { fp: Some(Fp { value: f64::INFINITY }), ..Inner::default() };
    assert!(error(scalar, Shape::Fp).starts_with("the value holds inf:"));
}

#[test]
fn array_reply_fills_gaps_and_refuses_other_keys() {
    let append = |values: &[(Key, i64)], shape| {
        let mut message = Vec::new();
        append(&mut message, &path(shape), shape, PRECISION, &TypedValues::Pairs(values.to_vec())).map(|()| message)
    };
    let message = append(&[(3.into(), 7), (1.into(), 5)], Shape::IntArray).unwrap();
    let ints = Outer::decode(&message[..]).unwrap().inner.unwrap().ints.unwrap();
    assert_eq!(ints.data, [0, 5, 0, 7]);
    for key in [Key::from(-1), Key::from(i64::MAX), Key::from("a")] {
        let wanted = "an array";
        assert_eq!(append(&[(key.clone(), 1)], Shape::IntArray), Err(ReplyError::Key { key, wanted }));
    }
    assert_eq!(append(&[(0.into(), 1), (1.into(), 2)], Shape::Int), Err(ReplyError::Several(2)));
    // One key must not allocate the whole array.
    let len = ARRAY_LANES_MAX;
    let far = [((len as i64 - 1).into(), 1)];
    assert_eq!(append(&far, Shape::FpArray), Err(ReplyError::Sparse { len, pairs: 1 }));
    assert!(append(&[(0.into(), 1)], Shape::StrInt).is_err());
    assert!(append(&[("a".into(), 1)], Shape::IntFp).is_err());
}

#[test]
fn empty_typed_field_is_present_in_reply() {
    for shape in Shape::ALL {
        let mut message = Vec::new();
        append(&mut message, &path(shape), shape, PRECISION, &TypedValues::EMPTY).unwrap();
        let mut decoded = Outer::decode(&message[..]).unwrap();
        let expected = if shape.is_scalar() { vec![(0.into(), 0)] } else { vec![] };
        assert_eq!(take(&mut decoded, shape), Some(Ok(expected)), "{shape:?}");
    }
}
