//! Choice of the values that travel (top-k): each worker weighs groups of [`GROUP`] values, the weights are summed, and
//! all workers take the same heaviest groups. What they leave stays with them, and weighs in the next step.

use pathcall_wire::policy::LaneFormat;

use super::pack;

/// Values of a group.
pub(super) const GROUP: usize = 64;
/// Denominator of the share of groups that travel.
const WHOLE: u64 = 1_000_000;

/// Number of groups of `values` values.
pub(super) fn groups(values: usize) -> usize {
    values.div_ceil(GROUP)
}

/// Number of groups that travel, of so many: this share, in millionths, and at least one.
pub(super) fn chosen(groups: usize, share: u32) -> usize {
    let chosen = (groups as u64 * u64::from(share)).div_ceil(WHOLE) as usize;
    chosen.clamp(1, groups.max(1))
}

/// Weights of a worker's groups, packed: their norms, relative to the largest one.
pub(super) fn weights(format: LaneFormat, workers: u32, values: &[f32]) -> Vec<i32> {
    let norm = |group: &[f32]| group.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
    let norms: Vec<f64> = values.chunks(GROUP).map(norm).collect();
    let largest = norms.iter().copied().fold(0.0, f64::max);
    let scale = f64::from(pack::limit(format, workers)) / if largest > 0.0 { largest } else { 1.0 };
    let weights: Vec<i32> = norms.iter().map(|norm| (norm * scale).round() as i32).collect();
    let mut lanes = Vec::new();
    pack::pack(format, &weights, &mut lanes);
    lanes
}

/// Indices of the heaviest groups, ascending, from the sums of the packed weights. Of groups with equal weights, those
/// from a start on that the sums determine: not always the first ones.
pub(super) fn heaviest(format: LaneFormat, sums: &[i32], groups: usize, share: u32) -> Vec<u32> {
    let mut weights = vec![0; groups];
    pack::unpack(format, sums, &mut weights);
    let start = sums.iter().fold(0u32, |hash, sum| hash.wrapping_mul(31).wrapping_add(sum.cast_unsigned())) as usize;
    let turn = |group: u32| (group as usize + groups - start % groups) % groups;
    let mut order: Vec<u32> = (0..groups as u32).collect();
    let chosen = chosen(groups, share).min(groups);
    let key = |group: &u32| (std::cmp::Reverse(weights[*group as usize]), turn(*group));
    if chosen < groups {
        order.select_nth_unstable_by_key(chosen, key);
    }
    order.truncate(chosen);
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaviest_groups_of_all_workers_are_chosen() {
        let mut values = [vec![0.0f32; GROUP * 10], vec![0.0; GROUP * 10]];
        (values[0][GROUP * 3], values[1][GROUP * 7 + 5], values[1][GROUP * 3]) = (5.0, -4.0, 1.0);
        for format in [LaneFormat::Int16, LaneFormat::Int8] {
            let parts = values.each_ref().map(|values| weights(format, 2, values));
            let sums: Vec<i32> = parts[0].iter().zip(&parts[1]).map(|(one, other)| one + other).collect();
            assert_eq!(heaviest(format, &sums, 10, 200_000), [3, 7]);
            assert_eq!(heaviest(format, &sums, 10, 100_000), [3], "1.25 of the largest norms, against 1");
        }
    }

    #[test]
    fn share_is_at_least_one_group() {
        assert_eq!([chosen(1, 10), chosen(100, 10), chosen(100, 10_001), chosen(3, WHOLE as u32)], [1, 1, 2, 3]);
    }

    #[test]
    fn groups_of_equal_weight_take_turns() {
        let chosen = [1, 2, 3].map(|sum| heaviest(LaneFormat::Int8, &[sum, 0], 5, 400_000));
        assert_eq!(chosen, [[0, 1], [0, 2], [0, 3]]);
    }
}
