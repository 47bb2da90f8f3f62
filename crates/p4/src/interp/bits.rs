//! Bit fields of byte strings, most significant bit first, as in packet headers.

/// Mask of all bits of this width.
#[inline]
pub const fn mask(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Mask of the highest `prefix` of `width` bits.
#[inline]
pub const fn prefix_mask(width: u16, prefix: u16) -> u128 {
    mask(width) & !mask(width.saturating_sub(prefix))
}

/// Value of `width` bits in two's complement.
#[inline]
pub const fn signed(value: u128, width: u16) -> i128 {
    let unused = 128 - width as u32;
    ((value << unused) as i128) >> unused
}

/// Reads `width` bits from bit offset `at`; the bytes must contain them.
#[inline]
pub fn read(bytes: &[u8], mut at: usize, width: u16) -> u128 {
    let mut left = usize::from(width);
    let mut value = 0;
    while left > 0 {
        let there = 8 - at % 8;
        let take = there.min(left);
        let part = (bytes[at / 8] >> (there - take)) & (0xff >> (8 - take));
        value = value << take | u128::from(part);
        at += take;
        left -= take;
    }
    value
}

/// Writes `width` bits at bit offset `at`; the bytes must contain them.
#[inline]
pub fn write(bytes: &mut [u8], mut at: usize, width: u16, value: u128) {
    let mut left = usize::from(width);
    while left > 0 {
        let there = 8 - at % 8;
        let take = there.min(left);
        let keep = there - take;
        let mask = (0xff >> (8 - take)) << keep;
        let part = ((value >> (left - take)) as u8) << keep;
        let byte = &mut bytes[at / 8];
        *byte = *byte & !mask | part & mask;
        at += take;
        left -= take;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bit_field_round_trips_and_preserves_neighbours(
            before in proptest::collection::vec(any::<u8>(), 24),
            at in 0usize..60,
            width in 1u16..=128,
            value: u128,
        ) {
            let mut bytes = before.clone();
            write(&mut bytes, at, width, value);
            prop_assert_eq!(read(&bytes, at, width), value & mask(width));
            for bit in (0..at).chain(at + usize::from(width)..bytes.len() * 8) {
                prop_assert_eq!(read(&bytes, bit, 1), read(&before, bit, 1), "bit {}", bit);
            }
        }
    }

    #[test]
    fn sign_is_highest_bit() {
        assert_eq!(signed(0b111, 3), -1);
        assert_eq!(signed(0b011, 3), 3);
        assert_eq!(signed(1 << 127, 128), i128::MIN);
        assert_eq!((prefix_mask(32, 0), prefix_mask(32, 24), prefix_mask(128, 128)), (0, 0xffff_ff00, u128::MAX));
    }
}
