//! Fuzz target of gRPC bodies and messages: extracts typed fields of every shape and inserts the fields again, and
//! reads a list of keys. Values that are read, written and read again are equal.

use bytes::Bytes;
use pathcall_endpoint::map::Key;
use pathcall_proto::manifest::Shape;
use pathcall_rpc::message::fields::split;
use pathcall_rpc::message::reply::append;
use pathcall_rpc::message::typed::{TypedError, TypedFieldReader, TypedValues};
use pathcall_rpc::message::{frame, keys};

const SHAPES: [Shape; 9] = [
    Shape::IntArray,
    Shape::FpArray,
    Shape::FpArray32,
    Shape::StrInt,
    Shape::StrFp,
    Shape::IntInt,
    Shape::IntFp,
    Shape::Int,
    Shape::Fp,
];
const PATHS: [&[u32]; 3] = [&[1], &[2, 1], &[1, 1, 1]];

/// Tests one input.
pub fn run(data: &[u8]) {
    let _ = frame::open(&Bytes::copy_from_slice(data));
    let Some((choice, message)) = data.split_first() else { return };
    let (shape, path) = (SHAPES[usize::from(*choice) % SHAPES.len()], PATHS[usize::from(*choice) / 9 % PATHS.len()]);
    if let Ok(found) = keys::read(message) {
        let mut again = Vec::new();
        keys::append(&mut again, &found);
        assert_eq!(keys::read(&again), Ok(found));
    }
    let Some((pairs, mut rest)) = read(message, path, shape) else { return };
    let pairs = TypedValues::Pairs(pairs);
    if append(&mut rest, path, shape, 0, &pairs).is_ok() {
        let (again, _) = read(&rest, path, shape).expect("written values can be read");
        if matches!(shape, Shape::IntArray | Shape::StrInt | Shape::IntInt) {
            assert_eq!(TypedValues::Pairs(again), pairs);
        }
    }
}

/// Keys with their values.
type Pairs = Vec<(Key, i64)>;

/// Splits a message into the typed field's values and the rest.
fn read(message: &[u8], path: &[u32], shape: Shape) -> Option<(Pairs, Vec<u8>)> {
    let (mut reader, mut rest) = (TypedFieldReader::new(shape, 0), Vec::new());
    split::<TypedError>(message, path, &mut rest, &mut |part| reader.part(part)).ok()?;
    Some((reader.into_values().into_pairs(), rest))
}
