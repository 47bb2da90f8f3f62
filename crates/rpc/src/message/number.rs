//! Quantisation: floating-point numbers as integers and back (NetRPC §5.2.1).
//!
//! A number travels as `round(value × 10^Precision)`, halves away from zero, in double precision
//! on every host, so that equal inputs give equal sums. Integers travel as they are.

/// Quantised values stay below this: two of them still add up in 64 bits.
pub const QUANTISED_MAX: f64 = (1u64 << 62) as f64;

/// Largest Precision: 10^15 is a power of ten that a double holds exactly.
pub const PRECISION_MAX: u8 = 15;

/// The scale of an application's floating-point values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    factor: f64,
}

impl Scale {
    /// The scale of a Precision: digits after the decimal point. More than [`PRECISION_MAX`] are
    /// taken for so many.
    #[must_use]
    pub fn new(precision: u8) -> Self {
        // Each step is exact up to 10^22.
        Self { factor: (0..precision.min(PRECISION_MAX)).fold(1.0, |factor, _| factor * 10.0) }
    }

    /// The integer that stands for `value`; `None` when there is none: not a number, infinite or
    /// too large.
    #[inline]
    #[must_use]
    pub fn quantise(self, value: f64) -> Option<i64> {
        let scaled = value * self.factor;
        // False for NaN as well.
        (scaled.abs() < QUANTISED_MAX).then(|| round_half_away(scaled))
    }

    /// The number that `quantised` stands for.
    #[inline]
    #[must_use]
    pub fn dequantise(self, quantised: i64) -> f64 {
        quantised as f64 / self.factor
    }
}

/// `value.round() as i64` without the call into the C library that baseline x86-64 makes of it.
/// One half less the smallest step: a larger half would lift 0.499…94 to 1.
#[inline]
fn round_half_away(value: f64) -> i64 {
    const BELOW_HALF: f64 = 0.499_999_999_999_999_94;
    (value + BELOW_HALF.copysign(value)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_go_away_from_zero() {
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
    fn what_has_no_integer_is_refused() {
        let unit = Scale::new(0);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, QUANTISED_MAX, -QUANTISED_MAX, f64::MAX] {
            assert_eq!(unit.quantise(value), None, "{value}");
        }
        assert_eq!(unit.quantise(QUANTISED_MAX.next_down()), Some((1 << 62) - 512));
        assert_eq!(Scale::new(8).quantise(1e11), None);
    }

    proptest! {
        #[test]
        fn rounds_as_the_standard_library_does(value: f64, small in -1e6..1e6f64, halves in -1_000_000i64..1_000_000) {
            for value in [value, small, halves as f64 / 2.0] {
                if value.abs() < QUANTISED_MAX {
                    prop_assert_eq!(round_half_away(value), value.round() as i64);
                }
            }
        }

        #[test]
        fn a_decimal_comes_back(quantised in -1_000_000_000_000i64..1_000_000_000_000, precision in 0u8..=4) {
            let scale = Scale::new(precision);
            prop_assert_eq!(scale.quantise(scale.dequantise(quantised)), Some(quantised));
        }
    }
}
