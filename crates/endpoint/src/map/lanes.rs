//! Lanes in and out of frames: big-endian, 32 or 64 bits.

/// Lanes of a part of a wide row: two parts make a row of 256.
pub(crate) const WIDE_PART: usize = 128;

/// Whether every value fits a 32-bit lane. Without a branch for each, so that it is vectorised.
pub(crate) fn narrow(values: &[i64]) -> bool {
    let above = |v: &i64| v.wrapping_add(1 << 31).cast_unsigned() >> 32;
    values.iter().fold(0, |bits, v| bits | above(v)) == 0
}

/// Whether a 32-bit lane stands at an end of its range: its sum may have left it.
pub(crate) fn any_saturated(bytes: &[u8]) -> bool {
    let at_end = |lane: i32| lane == i32::MAX || lane == i32::MIN;
    narrow_lanes(bytes).fold(false, |any, lane| any | at_end(lane))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_32_bits_are_known() {
        let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        assert!(narrow(&[least, -1, 0, 1, most]));
        for wide in [least - 1, most + 1, i64::MIN, i64::MAX] {
            assert!(!narrow(&[0, wide, 0]), "{wide}");
        }
        for (lane, end) in
            [(i32::MAX, true), (i32::MIN, true), (i32::MAX - 1, false), (i32::MIN + 1, false), (0, false)]
        {
            assert_eq!(any_saturated(&[[0; 4], lane.to_be_bytes(), [0; 4]].concat()), end, "{lane}");
        }
    }
}
