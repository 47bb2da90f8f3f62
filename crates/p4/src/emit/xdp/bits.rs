//! Header fields as loads and stores of whole bytes: network order in the packet, host order in C.

use std::fmt::Write;

/// C type that stores a value of this width.
pub(super) fn holder(width: u16) -> &'static str {
    match width {
        0..=8 => "__u8",
        9..=16 => "__u16",
        17..=32 => "__u32",
        33..=64 => "u64",
        _ => "u128",
    }
}

/// C type in which expressions of this width are computed.
pub(super) fn computed(width: u16) -> &'static str {
    if width <= 64 { "u64" } else { "u128" }
}

/// C literal of the type in which this width is computed.
pub(super) fn number(value: u128, width: u16) -> String {
    match (width, value) {
        (0..=64, 0..=9) => format!("{value}ULL"),
        (0..=64, _) => format!("{value:#x}ULL"),
        (_, 0..=0xffff_ffff_ffff_ffff) => format!("(u128){value:#x}ULL"),
        _ => format!("((u128){:#x}ULL << 64 | {:#x}ULL)", (value >> 64) as u64, value as u64),
    }
}

/// `value` masked to its width; unchanged if its type has exactly this width.
pub(super) fn masked(value: &str, width: u16) -> String {
    match width {
        64 | 128 => value.to_owned(),
        _ => format!("({value} & {})", number(super::layout::mask(width), width)),
    }
}

/// Load of the field of `width` bits at bit offset `first` from `base`.
pub(super) fn load(base: &str, first: u32, width: u16) -> String {
    let (from, to) = ((first / 8) as usize, (first + u32::from(width)).div_ceil(8) as usize);
    let spare = to as u32 * 8 - first - u32::from(width);
    let whole = to - from;
    if spare == 0 && first.is_multiple_of(8) && matches!(whole, 1 | 2 | 4 | 8) {
        return part(base, from, whole);
    }
    // More than 16 bytes: the last byte is loaded separately.
    let last = (whole > 16).then(|| format!("({} >> {spare})", part(base, to - 1, 1)));
    let end = if last.is_some() { to - 1 } else { to };
    let wide = end - from > 8;
    let mut at = from;
    let mut value = String::new();
    while at < end {
        let bytes = [8, 4, 2, 1].into_iter().find(|bytes| *bytes <= end - at).unwrap_or(1);
        let (shift, cast) = ((end - at - bytes) * 8, if wide { "(u128)" } else { "" });
        let sep = if value.is_empty() { "" } else { " | " };
        let _ = match shift {
            0 => write!(value, "{sep}{cast}{}", part(base, at, bytes)),
            _ => write!(value, "{sep}{cast}{} << {shift}", part(base, at, bytes)),
        };
        at += bytes;
    }
    let value = match (last, spare) {
        (Some(last), _) => format!("(({value}) << {} | {last})", 8 - spare),
        (None, 0) => format!("({value})"),
        (None, _) => format!("(({value}) >> {spare})"),
    };
    let value = if wide && width <= 64 { format!("(u64){value}") } else { value };
    let exact = spare == 0 && first.is_multiple_of(8);
    if exact { value } else { masked(&value, width) }
}

/// Load of `bytes` bytes at byte offset `at`, as a number.
fn part(base: &str, at: usize, bytes: usize) -> String {
    let at = if at == 0 { base.to_owned() } else { format!("{base} + {at}") };
    match bytes {
        1 => format!("(u64)*(__u8 *)({at})"),
        2 => format!("(u64)bpf_ntohs(*(__be16 *)({at}))"),
        4 => format!("(u64)bpf_ntohl(*(__be32 *)({at}))"),
        _ => format!("(u64)bpf_be64_to_cpu(*(__be64 *)({at}))"),
    }
}

/// Statements that store a field; `value` is a variable of type [`computed`].
pub(super) fn store(base: &str, first: u32, width: u16, value: &str) -> Vec<String> {
    let end = first + u32::from(width);
    let (mut at, mut lines) = (first, Vec::new());
    while at < end {
        let byte = at / 8;
        let left = end - at;
        let whole = if at.is_multiple_of(8) { [64, 32, 16, 8].into_iter().find(|bits| *bits <= left) } else { None };
        let place = if byte == 0 { base.to_owned() } else { format!("{base} + {byte}") };
        if let Some(bits) = whole {
            let shift = left - bits;
            let value = if shift == 0 { value.to_owned() } else { format!("({value} >> {shift})") };
            lines.push(match bits {
                8 => format!("*(__u8 *)({place}) = {value};"),
                16 => format!("*(__be16 *)({place}) = bpf_htons((__u16){value});"),
                32 => format!("*(__be32 *)({place}) = bpf_htonl((__u32){value});"),
                _ => format!("*(__be64 *)({place}) = bpf_cpu_to_be64((u64){value});"),
            });
            at += bits;
        } else {
            // The remaining bits of a partial byte are preserved.
            let bits = (8 - at % 8).min(left);
            let (down, up) = (left - bits, 8 - at % 8 - bits);
            let own = ((1_u32 << bits) - 1) << up;
            let value = if down == 0 { value.to_owned() } else { format!("({value} >> {down})") };
            let value = if up == 0 { value } else { format!("({value} << {up})") };
            let kept = 0xff & !own;
            lines.push(format!("*(__u8 *)({place}) = (*(__u8 *)({place}) & {kept:#x}) | ({value} & {own:#x});"));
            at += bits;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_field_is_one_load() {
        assert_eq!(load("at", 32, 32), "(u64)bpf_ntohl(*(__be32 *)(at + 4))");
        assert_eq!(load("at", 0, 4), "((((u64)*(__u8 *)(at)) >> 4) & 0xfULL)");
    }

    #[test]
    fn store_of_partial_byte_preserves_other_bits() {
        assert_eq!(store("at", 4, 4, "x"), ["*(__u8 *)(at) = (*(__u8 *)(at) & 0xf0) | (x & 0xf);"]);
        assert_eq!(
            store("at", 3, 13, "x"),
            ["*(__u8 *)(at) = (*(__u8 *)(at) & 0xe0) | ((x >> 8) & 0x1f);", "*(__u8 *)(at + 1) = x;"]
        );
    }
}
