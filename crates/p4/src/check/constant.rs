//! Constants as C expressions, for handlers.

use super::Num;
use super::types::Type;
use super::value::Val;

/// C expression of a constant; `None` for values that no C type holds.
pub(super) fn in_c(value: &Val) -> Option<String> {
    if let Val::Num(number) = value {
        return number_in_c(*number);
    }
    let (Val::Scalar(ty, _), Some(bits)) = (value, value.constant()) else { return None };
    match ty.base() {
        Type::Float => Some(float_in_c(bits as u32)),
        Type::Int(width) => number_in_c(Num::of_bits(bits, *width, true)),
        _ => number_in_c(bits.into()),
    }
}

fn number_in_c(number: Num) -> Option<String> {
    let least = Num::of_bits(1 << 63, 64, true);
    if number == least {
        // C has no literal whose negation is this number.
        return Some(format!("(-{} - 1)", i64::MAX));
    }
    if number < least || number > u128::from(u64::MAX).into() {
        return None;
    }
    Some(match number {
        _ if number < 0.into() => format!("({number})"),
        // Without a suffix, compilers disagree on the literal's width.
        _ if number >= (1_u128 << 63).into() => format!("{number}u"),
        _ => number.to_string(),
    })
}

/// C expression with exactly these bits: hexadecimal, as a decimal fraction may be rounded.
fn float_in_c(bits: u32) -> String {
    let sign = if bits >> 31 == 1 { "-" } else { "" };
    let (exponent, fraction) = ((bits >> 23 & 0xff) as i32, bits & 0x7f_ffff);
    match exponent {
        0xff if fraction == 0 => format!("({sign}__builtin_inff())"),
        // A literal cannot select the NaN's payload.
        0xff => format!("(((union {{ unsigned bits; float value; }}){{ {bits:#x} }}).value)"),
        0 => format!("({sign}{fraction:#x}p-149f)"),
        _ => format!("({sign}{:#x}p{}f)", fraction | 1 << 23, exponent - 150),
    }
}

#[cfg(test)]
mod tests {
    use super::{Num, float_in_c, number_in_c};

    #[test]
    fn c_constants_keep_sign_of_numbers_and_bits_of_floats() {
        let number = |bits, width| number_in_c(Num::of_bits(bits, width, true));
        assert_eq!(number(0xfffb, 16).as_deref(), Some("(-5)"));
        assert_eq!(number(1 << 63, 64).as_deref(), Some("(-9223372036854775807 - 1)"));
        assert_eq!(number(1 << 64, 128), None);
        assert_eq!(number((1 << 63) - 1, 64).as_deref(), Some("9223372036854775807"));
        assert_eq!(number_in_c(u128::from(u64::MAX).into()).as_deref(), Some("18446744073709551615u"));
        assert_eq!(float_in_c(0x3e00_0000), "(0x800000p-26f)");
        assert_eq!(float_in_c(0xbf80_0001), "(-0x800001p-23f)");
        assert_eq!(float_in_c(0x8000_0000), "(-0x0p-149f)");
        assert_eq!(float_in_c(1), "(0x1p-149f)");
        assert_eq!(float_in_c(0xff80_0000), "(-__builtin_inff())");
    }
}
