//! Operators of the interpreter. A value occupies the low bits of a `u128`; the other bits are 0.

use super::bits::{mask, signed};
use crate::ir::{Binary, Unary};

/// Result of `op value`, of `width` bits.
#[inline]
pub fn unary(op: Unary, value: u128, width: u16) -> u128 {
    match op {
        Unary::Not => u128::from(value == 0),
        Unary::Complement => !value & mask(width),
        Unary::Negate => value.wrapping_neg() & mask(width),
    }
}

/// Conversion of a value from `from` to `to` bits; `sign` extends by the highest bit.
#[inline]
pub fn cast(value: u128, from: u16, to: u16, sign: bool) -> u128 {
    if sign { signed(value, from) as u128 & mask(to) } else { value & mask(to) }
}

/// Result of `left op right`; `width` is that of the operands, for `++` that of the right operand.
#[inline]
pub fn binary(op: Binary, left: u128, right: u128, width: u16, sign: bool) -> u128 {
    let number = |value| signed(value, width);
    let less = |a, b| if sign { number(a) < number(b) } else { a < b };
    let value = match op {
        Binary::Add => left.wrapping_add(right),
        Binary::Sub => left.wrapping_sub(right),
        Binary::Mul => left.wrapping_mul(right),
        Binary::AddSaturating if sign => saturate(number(left).saturating_add(number(right)), width),
        Binary::SubSaturating if sign => saturate(number(left).saturating_sub(number(right)), width),
        Binary::AddSaturating => left.saturating_add(right).min(mask(width)),
        Binary::SubSaturating => left.saturating_sub(right),
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Shl => left.checked_shl(amount(right)).unwrap_or(0),
        Binary::Shr if sign => (number(left) >> amount(right).min(127)) as u128,
        Binary::Shr => left.checked_shr(amount(right)).unwrap_or(0),
        // Both operands together have at most 128 bits.
        Binary::Concat => return left.checked_shl(width.into()).unwrap_or(0) | right,
        Binary::Eq => return u128::from(left == right),
        Binary::Ne => return u128::from(left != right),
        Binary::Lt => return u128::from(less(left, right)),
        Binary::Le => return u128::from(!less(right, left)),
        Binary::Gt => return u128::from(less(right, left)),
        Binary::Ge => return u128::from(!less(left, right)),
        Binary::LogicalAnd => return left & right,
        Binary::LogicalOr => return left | right,
    };
    value & mask(width)
}

fn saturate(value: i128, width: u16) -> u128 {
    let highest = (mask(width) >> 1) as i128;
    value.clamp(-highest - 1, highest) as u128
}

fn amount(bits: u128) -> u32 {
    bits.min(128) as u32
}
