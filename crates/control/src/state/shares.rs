//! Fair shares of an element's memory: weighted max-min by bytes.
//!
//! ```text
//!   capacity, claims in order of arrival ──▶ rows of each claim
//! ```
//!
//! Every claim gets the same number of bytes for each unit of its weight, unless it wants less; what it leaves is for
//! the others. NetRPC §5.2.2 leaves the scheduling of memory as future work; NetRPC §7 names it.

/// Bits of the registers of a row without its lanes.
const ROW_BITS: u64 = 682;
/// Bits of a lane.
const LANE_BITS: u64 = 32;
/// Fractions of a byte in which the level of the shares is computed.
const LEVEL_FRACTIONS: u128 = 1 << 16;

/// Bytes of `rows` rows of `width` lanes in an element.
#[must_use]
pub fn memory_bytes(rows: u32, width: u32) -> u64 {
    (u64::from(rows) * (ROW_BITS + LANE_BITS * u64::from(width))).div_ceil(8)
}

/// Most rows of `width` lanes that `bytes` bytes have.
#[must_use]
pub(super) fn rows_within(bytes: u64, width: u32) -> u32 {
    let rows = u128::from(bytes) * 8 / u128::from(ROW_BITS + LANE_BITS * u64::from(width));
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// Memory of an element that is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemorySize {
    pub(super) rows: u32,
    pub(super) lanes: u32,
}

/// Claim of an application on an element's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryClaim {
    /// Rows that it wants.
    pub(super) rows: u32,
    /// Rows without which it uses no element.
    pub(super) rows_min: u32,
    /// Lanes of a row.
    pub(super) width: u32,
    /// Weight, at least 1.
    pub(super) weight: u32,
}

impl MemoryClaim {
    /// Rows at a level of bytes for each unit of weight.
    fn rows_at(&self, level: u128) -> u32 {
        let row_bits = u128::from(ROW_BITS + LANE_BITS * u64::from(self.width)) * LEVEL_FRACTIONS;
        let rows = level * u128::from(self.weight) * 8 / row_bits;
        u32::try_from(rows).unwrap_or(u32::MAX).clamp(self.rows_min, self.rows)
    }

    /// Level at which the claim has all rows that it wants.
    fn level_max(&self) -> u128 {
        let bits = u128::from(self.rows) * u128::from(ROW_BITS + LANE_BITS * u64::from(self.width));
        (bits * LEVEL_FRACTIONS).div_ceil(8 * u128::from(self.weight.max(1))) + 1
    }
}

/// Rows of each claim. If the memory has not even the minimum for all claims, the last ones get nothing.
pub(super) fn fair_rows(size: MemorySize, claims: &[MemoryClaim]) -> Vec<u32> {
    let served = (0..=claims.len()).rev().find(|&served| fits(size, &claims[..served], 0)).unwrap_or(0);
    let served = &claims[..served];
    let (mut low, mut high) = (0, served.iter().map(MemoryClaim::level_max).max().unwrap_or(0));
    // Invariant: the level `low` fits; all levels above `high` give the same as `high` or do not fit.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(size, served, middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let rows = served.iter().map(|claim| claim.rows_at(low));
    rows.chain(std::iter::repeat(0)).take(claims.len()).collect()
}

fn fits(size: MemorySize, claims: &[MemoryClaim], level: u128) -> bool {
    let rows = claims.iter().map(|claim| u64::from(claim.rows_at(level)));
    let lanes = claims.iter().map(|claim| u64::from(claim.rows_at(level)) * u64::from(claim.width));
    rows.sum::<u64>() <= u64::from(size.rows) && lanes.sum::<u64>() <= u64::from(size.lanes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn claim(rows: u32, width: u32, weight: u32) -> MemoryClaim {
        MemoryClaim { rows, rows_min: 0, width, weight }
    }

    #[test]
    fn small_claim_leaves_rest_to_others() {
        let size = MemorySize { rows: 100, lanes: 1 << 20 };
        assert_eq!(fair_rows(size, &[claim(80, 32, 1), claim(10, 32, 1), claim(80, 32, 1)]), [45, 10, 45]);
        assert_eq!(fair_rows(size, &[claim(30, 32, 1), claim(20, 32, 1)]), [30, 20], "there is enough for all");
        assert_eq!(fair_rows(size, &[]), [0; 0]);
    }

    #[test]
    fn weight_multiplies_share() {
        let size = MemorySize { rows: 100, lanes: 1 << 20 };
        assert_eq!(fair_rows(size, &[claim(100, 32, 3), claim(100, 32, 1)]), [75, 25]);
        assert_eq!(fair_rows(size, &[claim(30, 32, 3), claim(100, 32, 1)]), [30, 70]);
    }

    #[test]
    fn shares_are_equal_in_bytes_not_in_rows() {
        let size = MemorySize { rows: 1 << 20, lanes: 25_600 };
        let rows = fair_rows(size, &[claim(1000, 256, 1), claim(100_000, 1, 1)]);
        let bytes = [memory_bytes(rows[0], 256), memory_bytes(rows[1], 1)];
        assert!(bytes[0].abs_diff(bytes[1]) <= memory_bytes(1, 256), "{rows:?} {bytes:?}");
        assert!((90..=100).contains(&rows[0]), "{rows:?}");
    }

    #[test]
    fn last_claims_get_nothing_below_minimum() {
        let size = MemorySize { rows: 40, lanes: 1 << 20 };
        let least = |rows| MemoryClaim { rows_min: 16, ..claim(rows, 32, 1) };
        assert_eq!(fair_rows(size, &[least(100), least(100), least(100)]), [20, 20, 0]);
        assert_eq!(fair_rows(size, &[MemoryClaim { weight: 1000, ..least(100) }, least(100)]), [24, 16]);
    }

    /// Weighted max-min row by row: the claim whose next row has the lowest level gets it, as long as it fits.
    fn model(size: MemorySize, claims: &[MemoryClaim]) -> Vec<u32> {
        let mut rows = vec![0u32; claims.len()];
        loop {
            let bits = |i: usize| u64::from(rows[i] + 1) * (ROW_BITS + LANE_BITS * u64::from(claims[i].width));
            let level = |i: usize| bits(i) as f64 / f64::from(claims[i].weight);
            let wanting = (0..claims.len()).filter(|&i| rows[i] < claims[i].rows);
            let Some(next) = wanting.min_by(|&a, &b| level(a).total_cmp(&level(b))) else { return rows };
            rows[next] += 1;
            let used: u32 = rows.iter().sum();
            let lanes: u32 = rows.iter().zip(claims).map(|(rows, claim)| rows * claim.width).sum();
            if used > size.rows || lanes > size.lanes {
                rows[next] -= 1;
                return rows;
            }
        }
    }

    proptest! {
        #[test]
        fn fair_rows_match_model(
            rows in 1u32..400,
            lanes in 1u32..30_000,
            claims in prop::collection::vec((0u32..200, prop::sample::select(vec![1u32, 64, 256]), 1u32..5), 1..12),
        ) {
            let claims: Vec<_> = claims.into_iter().map(|(rows, width, weight)| claim(rows, width, weight)).collect();
            let size = MemorySize { rows, lanes };
            let (fair, model) = (fair_rows(size, &claims), model(size, &claims));
            for (i, (got, expected)) in fair.iter().zip(&model).enumerate() {
                // Claims with the same level share the last rows in the model only.
                prop_assert!(got <= expected && expected - got <= 1, "claim {i}: {fair:?} and {model:?}");
            }
        }

        #[test]
        fn fair_rows_keep_limits(
            rows in 0u32..500,
            lanes in 0u32..30_000,
            claims in prop::collection::vec((0u32..200, 1u32..300, 1u32..1000, any::<bool>()), 0..12),
        ) {
            let claims: Vec<_> = claims.into_iter().map(|(rows, width, weight, least)| {
                MemoryClaim { rows_min: if least { rows.min(16) } else { 0 }, ..claim(rows, width, weight) }
            }).collect();
            let fair = fair_rows(MemorySize { rows, lanes }, &claims);
            prop_assert!(fair.iter().sum::<u32>() <= rows);
            prop_assert!(fair.iter().zip(&claims).map(|(rows, claim)| rows * claim.width).sum::<u32>() <= lanes);
            prop_assert!(fair.iter().zip(&claims).all(|(got, claim)| *got <= claim.rows));
            let first_without = fair.iter().zip(&claims).position(|(got, claim)| *got < claim.rows_min);
            prop_assert!(first_without.is_none_or(|at| fair[at..].iter().all(|rows| *rows == 0)), "{fair:?}");
        }
    }
}
