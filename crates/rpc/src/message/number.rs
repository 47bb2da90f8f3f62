//! Quantisation: floating-point numbers as integers and back (NetRPC §5.2.1).
//!
//! A number is sent as `round(value × 10^Precision)`, halves away from zero, in double precision on every host, so that
//! equal inputs give equal sums. Integers are sent unchanged.

use pathcall_endpoint::map::Lanes;

/// Exclusive bound of quantised values: the sum of two of them fits 64 bits.
pub const QUANTISED_MAX: f64 = (1u64 << 62) as f64;

/// Maximum Precision: a double holds 10^15 exactly.
pub const PRECISION_MAX: u8 = 15;

/// Exclusive bound of scaled values that fit 32 bits after rounding.
const NARROW_MAX: f64 = i32::MAX as f64;

/// Number of values that are converted at a time: they fit the first-level cache.
const BLOCK: usize = 256;

/// Scale of an application's floating-point values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    factor: f64,
}

impl Scale {
    /// Scale of a Precision: digits after the decimal point, at most [`PRECISION_MAX`] (larger ones are reduced to it).
    #[must_use]
    pub fn new(precision: u8) -> Self {
        // Each step is exact up to 10^22.
        Self { factor: (0..precision.min(PRECISION_MAX)).fold(1.0, |factor, _| factor * 10.0) }
    }

    /// Quantises a value; `None` if it is not a number, infinite or too large.
    #[inline]
    #[must_use]
    pub fn quantise(self, value: f64) -> Option<i64> {
        let scaled = value * self.factor;
        // False for NaN as well.
        (scaled.abs() < QUANTISED_MAX).then(|| round_half_away(scaled))
    }

    /// Appends the quantised `values`, as [`quantise`](Self::quantise) computes them. Stops before the first value that
    /// cannot be quantised, so fewer values are appended.
    ///
    /// Most arrays fit 32 bits, and those are converted with vector instructions.
    pub fn quantise_all<T: Copy>(self, values: &[T], read: impl Fn(T) -> f64 + Copy, out: &mut Lanes) {
        if let Lanes::Narrow(lanes) = out {
            let before = lanes.len();
            if self.quantise_narrow(values, read, lanes) {
                return;
            }
            lanes.truncate(before);
        }
        let lanes = out.widen();
        lanes.reserve(values.len());
        lanes.extend(values.iter().map_while(|value| self.quantise(read(*value))));
    }

    /// Whether all values fit 32 bits. Without a branch per value, so that the compiler can vectorise the loop.
    fn quantise_narrow<T: Copy>(self, values: &[T], read: impl Fn(T) -> f64 + Copy, out: &mut Vec<i32>) -> bool {
        out.reserve(values.len());
        pulp::Arch::new().dispatch(|| {
            values.chunks(BLOCK).all(|values| {
                let mut block = [0; BLOCK];
                let mut narrow = true;
                for (lane, value) in block.iter_mut().zip(values) {
                    let scaled = read(*value) * self.factor;
                    // False for NaN as well.
                    narrow &= scaled.abs() < NARROW_MAX;
                    *lane = nudge_from_zero(scaled) as i32;
                }
                out.extend_from_slice(&block[..values.len()]);
                narrow
            })
        })
    }

    /// Number for a quantised value.
    #[inline]
    #[must_use]
    pub fn dequantise(self, quantised: i64) -> f64 {
        quantised as f64 / self.factor
    }

    /// Appends the encoded numbers of `lanes`.
    pub fn dequantise_all<const N: usize>(
        self,
        lanes: &Lanes,
        encode: impl Fn(f64) -> [u8; N] + Copy,
        out: &mut Vec<u8>,
    ) {
        match lanes {
            Lanes::Narrow(lanes) => put_blocks(out, lanes, |lane| encode(f64::from(lane) / self.factor)),
            Lanes::Wide(lanes) => put_blocks(out, lanes, |lane| encode(self.dequantise(lane))),
        }
    }
}

/// Appends numbers of fixed width block by block: a vector that grows number by number is twice as slow.
fn put_blocks<T: Copy, const N: usize>(out: &mut Vec<u8>, lanes: &[T], encode: impl Fn(T) -> [u8; N]) {
    pulp::Arch::new().dispatch(|| {
        for lanes in lanes.chunks(BLOCK) {
            let mut block = [[0; N]; BLOCK];
            for (number, lane) in block.iter_mut().zip(lanes) {
                *number = encode(*lane);
            }
            out.extend_from_slice(block[..lanes.len()].as_flattened());
        }
    });
}

/// `value.round() as i64` without the call into the C library that baseline x86-64 makes of it. Adds one half less the
/// smallest step: a larger half would round 0.499…94 to 1.
#[inline]
fn round_half_away(value: f64) -> i64 {
    nudge_from_zero(value) as i64
}

/// Value that gives the rounded integer when its fraction is cut off.
#[inline]
fn nudge_from_zero(value: f64) -> f64 {
    const BELOW_HALF: f64 = 0.499_999_999_999_999_94;
    value + BELOW_HALF.copysign(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_round_away_from_zero() {
        let unit = Scale::new(0);
        for (value, quantised) in [
            (0.5, 1),
            (-0.5, -1),
            (1.5, 2),
            (-2.5, -3),
            (0.499_999_999_999_999_94, 0),
            (-0.0, 0),
            (2f64.powi(53), 1 << 53),
        ] {
            assert_eq!(unit.quantise(value), Some(quantised), "{value}");
        }
        assert_eq!(Scale::new(2).quantise(-1.235), Some(-124));
    }

    #[test]
    fn unquantisable_value_is_refused() {
        let unit = Scale::new(0);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, QUANTISED_MAX, -QUANTISED_MAX, f64::MAX] {
            assert_eq!(unit.quantise(value), None, "{value}");
        }
        assert_eq!(unit.quantise(QUANTISED_MAX.next_down()), Some((1 << 62) - 512));
        assert_eq!(Scale::new(8).quantise(1e11), None);
    }

    proptest! {
        #[test]
        fn rounding_matches_standard_library(value: f64, small in -1e6..1e6f64, halves in -1_000_000i64..1_000_000) {
            for value in [value, small, halves as f64 / 2.0] {
                if value.abs() < QUANTISED_MAX {
                    prop_assert_eq!(round_half_away(value), value.round() as i64);
                }
            }
        }

        #[test]
        fn quantise_all_matches_quantise(
            small in proptest::collection::vec(-1e7..1e7f64, 0..300),
            odd in proptest::collection::vec((0usize..300, proptest::num::f64::ANY), 0..3),
            precision in 0u8..=4,
        ) {
            let mut values = small;
            for (at, value) in odd {
                if let Some(place) = values.get_mut(at) {
                    *place = value;
                }
            }
            let scale = Scale::new(precision);
            let expected: Vec<i64> = values.iter().map_while(|value| scale.quantise(*value)).collect();
            let mut got = Lanes::default();
            scale.quantise_all(&values, |value| value, &mut got);
            prop_assert_eq!(&got, &Lanes::from(expected));
            let mut back = Vec::new();
            scale.dequantise_all(&got, f64::to_le_bytes, &mut back);
            let expected: Vec<_> = got.iter().flat_map(|lane| scale.dequantise(lane).to_le_bytes()).collect();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn decimal_round_trips(quantised in -1_000_000_000_000i64..1_000_000_000_000, precision in 0u8..=4) {
            let scale = Scale::new(precision);
            prop_assert_eq!(scale.quantise(scale.dequantise(quantised)), Some(quantised));
        }
    }
}
