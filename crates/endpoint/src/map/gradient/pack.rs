//! Small values in 32-bit lanes: two of 16 bits, or four of 8.
//!
//! A lane is the integer `v0 + v1 · 2^bits + v2 · 2^2bits …`, with signed values. The sum of such lanes is the lane of the
//! sums, as long as each sum fits its bits. So an element adds packed lanes as it adds any others, in each of its
//! executions, and the server's software path gives the same result. Each of W workers uses values up to
//! [`limit`] = (2^(bits-1) - 1) / W. A lane is then never at an end of the 32-bit range.

use pathcall_wire::policy::LaneFormat;
use pathcall_wire::{Mutant, mutant};

/// Largest absolute value of one of `workers` workers.
pub(super) fn limit(format: LaneFormat, workers: u32) -> i32 {
    let largest = i32::MAX >> (32 - format.bits());
    if mutant::on(Mutant::PackedHeadroom) {
        return largest;
    }
    largest / i32::try_from(workers.max(1)).unwrap_or(i32::MAX)
}

/// Number of values in a lane.
pub(super) fn per_lane(format: LaneFormat) -> usize {
    (32 / format.bits()) as usize
}

/// Appends the lanes of `values`; the last one is filled with zeros.
pub(super) fn pack(format: LaneFormat, values: &[i32], out: &mut Vec<i32>) {
    match format {
        LaneFormat::Int32 => out.extend_from_slice(values),
        LaneFormat::Int16 => pack_by::<2>(values, out),
        LaneFormat::Int8 => pack_by::<4>(values, out),
    }
}

fn pack_by<const N: usize>(values: &[i32], out: &mut Vec<i32>) {
    let lane = |values: &[i32]| {
        let shifted = values.iter().enumerate().map(|(at, value)| value.wrapping_shl((at * 32 / N) as u32));
        shifted.fold(0, i32::wrapping_add)
    };
    let (whole, rest) = values.as_chunks::<N>();
    out.extend(whole.iter().map(|values| lane(values)));
    if !rest.is_empty() {
        out.push(lane(rest));
    }
}

/// Writes the values of `lanes` into `out`, which says how many there are.
pub(super) fn unpack(format: LaneFormat, lanes: &[i32], out: &mut [i32]) {
    match format {
        LaneFormat::Int32 => out.copy_from_slice(&lanes[..out.len()]),
        LaneFormat::Int16 => unpack_by::<2>(lanes, out),
        LaneFormat::Int8 => unpack_by::<4>(lanes, out),
    }
}

fn unpack_by<const N: usize>(lanes: &[i32], out: &mut [i32]) {
    let bits = 32 / N as u32;
    for (values, lane) in out.chunks_mut(N).zip(lanes) {
        let mut rest = *lane;
        for value in values {
            *value = rest.wrapping_shl(32 - bits) >> (32 - bits);
            // A negative value has borrowed from the values above it.
            let borrowed = if mutant::on(Mutant::PackedBorrow) { 0 } else { *value };
            rest = rest.wrapping_sub(borrowed) >> bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lane_is_never_at_end_of_range() {
        for format in [LaneFormat::Int16, LaneFormat::Int8] {
            for end in [1, -1] {
                let mut lanes = Vec::new();
                pack(format, &vec![end * limit(format, 1); per_lane(format)], &mut lanes);
                assert!(lanes[0] > i32::MIN && lanes[0] < i32::MAX, "{format:?}: {lanes:?}");
            }
        }
    }

    #[test]
    fn values_of_most_workers_fit() {
        for format in [LaneFormat::Int16, LaneFormat::Int8] {
            let workers = format.workers_max();
            assert!(limit(format, workers) >= 1, "{format:?}");
            assert!(limit(format, workers) * workers as i32 <= limit(format, 1));
        }
    }

    proptest! {
        #[test]
        fn sum_of_lanes_is_lane_of_sums(
            workers in 1u32..=64, int8: bool, seed in proptest::collection::vec(any::<i32>(), 1..200),
        ) {
            let format = if int8 { LaneFormat::Int8 } else { LaneFormat::Int16 };
            let limit = limit(format, workers);
            let mut sums = vec![0; seed.len()];
            let mut lanes = vec![0i32; seed.len().div_ceil(per_lane(format))];
            for worker in 0..workers as i32 {
                let drawn = seed.iter().map(|v| v.wrapping_mul(worker * 2 + 1).wrapping_add(worker));
                let values: Vec<i32> = drawn.map(|v| v.rem_euclid(2 * limit + 1) - limit).collect();
                sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
                let mut part = Vec::new();
                pack(format, &values, &mut part);
                for (lane, part) in lanes.iter_mut().zip(&part) {
                    *lane = lane.checked_add(*part).expect("no lane overflows");
                }
            }
            let mut got = vec![0; seed.len()];
            unpack(format, &lanes, &mut got);
            prop_assert_eq!(got, sums);
        }
    }
}
