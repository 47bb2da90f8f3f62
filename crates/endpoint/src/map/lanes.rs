//! Lanes in and out of frames: big-endian, 32 or 64 bits.

/// Lanes of a part of a wide row: two parts make a row of 256.
pub(crate) const WIDE_PART: usize = 128;

/// Whether every value fits a 32-bit lane.
pub(crate) fn narrow(values: &[i64]) -> bool {
    values.iter().all(|v| i32::try_from(*v).is_ok())
}

/// Writes 32-bit lanes; the values are known to fit.
pub(crate) fn put_narrow(values: &[i64], out: &mut [u8]) {
    for (lane, value) in out.chunks_exact_mut(4).zip(values) {
        lane.copy_from_slice(&(*value as i32).to_be_bytes());
    }
}

/// Writes 64-bit lanes.
pub(crate) fn put_wide(values: &[i64], out: &mut [u8]) {
    for (lane, value) in out.chunks_exact_mut(8).zip(values) {
        lane.copy_from_slice(&value.to_be_bytes());
    }
}

/// Reads 32-bit lanes.
pub(crate) fn narrow_lanes(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.chunks_exact(4).map(|lane| i32::from_be_bytes([lane[0], lane[1], lane[2], lane[3]]))
}

/// Reads 64-bit lanes.
pub(crate) fn wide_lanes(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.chunks_exact(8).filter_map(|lane| lane.first_chunk().map(|b| i64::from_be_bytes(*b)))
}
