//! Compile-time numbers of type `int` (P4_16 §7.1.6.5): a sign and up to 128 bits.

use std::cmp::Ordering;
use std::fmt;

/// Compile-time number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Num {
    /// Sign; false for 0.
    negative: bool,
    magnitude: u128,
}

impl From<u128> for Num {
    fn from(magnitude: u128) -> Self {
        Self { negative: false, magnitude }
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        write!(f, "{}", self.magnitude)
    }
}

impl PartialOrd for Num {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Num {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.magnitude.cmp(&other.magnitude),
            (true, true) => other.magnitude.cmp(&self.magnitude),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

/// Mask of the lowest `width` bits.
pub(crate) fn mask(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

impl Num {
    fn new(negative: bool, magnitude: u128) -> Self {
        Self { negative: negative && magnitude != 0, magnitude }
    }

    /// Value of the lowest `width` bits, in two's complement if signed.
    pub fn of_bits(bits: u128, width: u16, signed: bool) -> Self {
        let bits = bits & mask(width);
        if signed && bits >> (width - 1) & 1 == 1 { Self::new(true, mask(width) - bits + 1) } else { bits.into() }
    }

    /// Lowest `width` bits, in two's complement.
    pub fn bits(self, width: u16) -> u128 {
        let all = if self.negative { self.magnitude.wrapping_neg() } else { self.magnitude };
        all & mask(width)
    }

    /// True if the number fits. For an unsigned type, a negative number stands for its two's complement.
    pub fn fits(self, width: u16, signed: bool) -> bool {
        let half = 1_u128 << (width - 1);
        match (self.negative, signed) {
            (true, _) => self.magnitude <= half,
            (false, true) => self.magnitude < half,
            (false, false) => self.magnitude <= mask(width),
        }
    }

    /// Value as `u32`, if in range.
    pub fn to_u32(self) -> Option<u32> {
        self.to_u128()?.try_into().ok()
    }

    /// Value as `u128`, if not negative.
    pub fn to_u128(self) -> Option<u128> {
        (!self.negative).then_some(self.magnitude)
    }

    /// Value as `i128`, if in range.
    pub fn to_i128(self) -> Option<i128> {
        let magnitude = i128::try_from(self.magnitude).ok()?;
        Some(if self.negative { -magnitude } else { magnitude })
    }

    pub fn negate(self) -> Self {
        Self::new(!self.negative, self.magnitude)
    }

    pub fn add(self, other: Self) -> Option<Self> {
        if self.negative == other.negative {
            return Some(Self::new(self.negative, self.magnitude.checked_add(other.magnitude)?));
        }
        let negative = if self.magnitude >= other.magnitude { self.negative } else { other.negative };
        Some(Self::new(negative, self.magnitude.abs_diff(other.magnitude)))
    }

    pub fn mul(self, other: Self) -> Option<Self> {
        Some(Self::new(self.negative != other.negative, self.magnitude.checked_mul(other.magnitude)?))
    }

    /// Quotient of numbers that are not negative (§8.8).
    pub fn div(self, other: Self) -> Option<Self> {
        Some(self.to_u128()?.checked_div(other.to_u128()?)?.into())
    }

    /// Remainder of numbers that are not negative (§8.8).
    pub fn rem(self, other: Self) -> Option<Self> {
        Some(self.to_u128()?.checked_rem(other.to_u128()?)?.into())
    }

    pub fn shl(self, by: Self) -> Option<Self> {
        if self.magnitude == 0 {
            return Some(self);
        }
        let by = by.to_u32()?;
        (by <= self.magnitude.leading_zeros()).then(|| Self::new(self.negative, self.magnitude << by))
    }

    /// Arithmetic right shift, which rounds down.
    pub fn shr(self, by: Self) -> Option<Self> {
        let by = by.to_u32().or(by.to_u128().map(|_| u32::MAX))?;
        let shifted = self.magnitude.checked_shr(by).unwrap_or(0);
        let lost = self.negative && shifted.checked_shl(by).unwrap_or(0) != self.magnitude;
        Some(Self::new(self.negative, shifted + u128::from(lost)))
    }

    /// Bitwise operation on infinite two's complement.
    pub fn bitwise(
        self,
        other: Self,
        by: impl Fn(u128, u128) -> u128,
        signs: impl Fn(bool, bool) -> bool,
    ) -> Option<Self> {
        if !self.negative && !other.negative {
            return Some(by(self.magnitude, other.magnitude).into());
        }
        let (left, right) = (self.to_i128()?, other.to_i128()?);
        let bits = by(left as u128, right as u128);
        Some(Self::of_bits(bits, 128, signs(left < 0, right < 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(value: i128) -> Num {
        Num::new(value < 0, value.unsigned_abs())
    }

    #[test]
    fn bits_above_width_are_ignored() {
        assert_eq!(Num::of_bits(0x1ff, 8, true), n(-1));
        assert_eq!(Num::of_bits(0x17f, 8, false), n(127));
    }

    #[test]
    fn arithmetic_matches_integers() {
        let some = [-300_i128, -7, -2, -1, 0, 1, 2, 5, 255, 1 << 40];
        for a in some {
            for b in some {
                assert_eq!(n(a).add(n(b)), Some(n(a + b)), "{a} + {b}");
                assert_eq!(n(a).mul(n(b)), Some(n(a * b)), "{a} * {b}");
                assert_eq!(n(a).cmp(&n(b)), a.cmp(&b), "{a} ? {b}");
                assert_eq!(n(a).bitwise(n(b), |a, b| a & b, |a, b| a & b), Some(n(a & b)), "{a} & {b}");
                assert_eq!(n(a).bitwise(n(b), |a, b| a ^ b, |a, b| a ^ b), Some(n(a ^ b)), "{a} ^ {b}");
                if (0..60).contains(&b) {
                    assert_eq!(n(a).shl(n(b)), Some(n(a << b)), "{a} << {b}");
                    assert_eq!(n(a).shr(n(b)), Some(n(a >> b)), "{a} >> {b}");
                }
            }
        }
    }

    #[test]
    fn arithmetic_beyond_range_is_none() {
        let most = Num::from(u128::MAX);
        assert_eq!(most.add(n(1)), None);
        assert_eq!(most.mul(n(2)), None);
        assert_eq!(most.shl(n(1)), None);
        assert_eq!(most.shl(n(1 << 70)), None);
        assert_eq!(n(1).div(n(0)), None);
        assert_eq!(n(-4).div(n(2)), None);
        assert_eq!(n(0).shl(n(1 << 70)), Some(n(0)));
        assert_eq!(n(-1).shr(n(1 << 70)), Some(n(-1)));
    }

    #[test]
    fn bits_round_trip() {
        assert_eq!(n(-1).bits(8), 255);
        assert_eq!(Num::of_bits(255, 8, true), n(-1));
        assert_eq!(Num::of_bits(255, 8, false), n(255));
        assert_eq!(Num::of_bits(u128::MAX, 128, true), n(-1));
        assert!(n(255).fits(8, false) && !n(256).fits(8, false) && !n(128).fits(8, true) && n(-128).fits(8, true));
    }
}
