//! Bit patterns of special floats, packets with them, and the expected results.

/// 0, -0, smallest denormals, largest denormals, smallest normals, 1, largest normals, infinities, NaNs: quiet,
/// signalling, with all bits set.
pub const BITS: [u32; 20] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x807f_ffff,
    0x0040_0000,
    0x0080_0000,
    0x8080_0000,
    0x3f80_0000,
    0xbf80_0001,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc0_1234,
    0x7f80_0001,
    0xffa0_0000,
    0xffff_ffff,
];

/// Offset of the numbers: Ethernet, IPv4, UDP.
const NUMBERS: usize = 42;

/// Packet with this value.
pub fn packet(value: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    bytes.extend([0x45, 0, 0, 54, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 1, 0, 2, 0, 34, 0, 0]);
    bytes.extend(value.to_be_bytes());
    bytes.extend((!value).to_be_bytes());
    bytes.extend([0; 18]);
    bytes
}

/// Checks the output; `before` is the value of the previous packet.
pub fn check(value: u32, before: u32, left: &[Vec<u8>]) {
    let [bytes] = left else { panic!("{value:#x}: {} packets left", left.len()) };
    let word = |at: usize| {
        let at = NUMBERS + 4 * at;
        u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    assert_eq!((word(0), word(1)), (value, !value), "unwritten bytes are unchanged");
    assert_eq!(word(2), value, "{value:#x} came back as {:#x}", word(2));
    let twice = f32::from_bits(value) * 2.0;
    let got = f32::from_bits(word(3));
    let same = if twice.is_nan() { got.is_nan() } else { twice.to_bits() == got.to_bits() };
    assert!(same, "{value:#x} doubled: {:#x}", word(3));
    assert_eq!(word(4), !value, "a cast keeps the bits");
    let number = f32::from_bits(value);
    let kinds = [number.is_nan(), number.is_infinite(), number <= 0.0, number > 0.0];
    let kind = kinds.iter().rev().fold(0u8, |all, one| all << 1 | u8::from(*one));
    assert_eq!(bytes[NUMBERS + 20..NUMBERS + 22], [kind, 1], "{value:#x}");
    let at = NUMBERS + 22;
    assert_eq!(bytes[at..at + 4], before.to_be_bytes(), "carried metadata");
}
