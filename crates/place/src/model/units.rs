//! Parser of numbers with units: `12.8 GB/s`, `600 ns`, `20 M/s`, `64 B`.

/// Physical quantity with its units, each with the factor to the first.
pub(crate) struct Quantity {
    /// Name in errors.
    name: &'static str,
    /// Example in errors.
    example: &'static str,
    /// Units; the result is in the first one.
    units: &'static [(&'static str, f64)],
    /// Minimum, in the first unit.
    min: f64,
    /// Maximum, in the first unit.
    max: f64,
}

/// Bytes, up to one tebibyte.
pub(super) const SIZE: Quantity = Quantity {
    name: "a size",
    example: "64 B or 256 KiB",
    units: &[
        ("B", 1.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ],
    min: 0.0,
    max: 1_099_511_627_776.0,
};
/// Bytes per second.
pub(super) const BANDWIDTH: Quantity = Quantity {
    name: "a bandwidth",
    example: "12.8 GB/s or 100 Gbit/s",
    units: &[
        ("B/s", 1.0),
        ("KB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
        ("TB/s", 1e12),
        ("KiB/s", 1024.0),
        ("MiB/s", 1_048_576.0),
        ("GiB/s", 1_073_741_824.0),
        ("Mbit/s", 125_000.0),
        ("Gbit/s", 125_000_000.0),
    ],
    min: 1.0,
    max: 1e15,
};
/// Messages per second.
pub(super) const MESSAGES: Quantity = Quantity {
    name: "a rate of messages",
    example: "20 M/s or 350 k/s",
    units: &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)],
    min: 1.0,
    max: 1e12,
};
/// Nanoseconds, up to one hour.
pub(crate) const TIME: Quantity = Quantity {
    name: "a time",
    example: "600 ns or 1.5 us",
    units: &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)],
    min: 0.0,
    max: 3.6e12,
};

impl Quantity {
    /// Parses a number and converts it to the first unit, rounded; or returns the error's message.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, String> {
        let Self { name, example, units, min, max } = self;
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        let Ok(value) = number.parse::<f64>() else {
            return Err(format!("`{text}` is not {name}; write it like {example}"));
        };
        if number.starts_with('-') {
            return Err(format!("`{text}` is negative; {name} cannot be negative"));
        }
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit; write {name} like {example}"));
        }
        let Some((_, factor)) = units.iter().find(|(known, _)| *known == unit) else {
            let known: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
            return Err(format!("invalid unit `{unit}` of {name}; units are {}", known.join(", ")));
        };
        let value = value * factor;
        if value < *min {
            return Err(format!("`{text}` is too small; {name} is at least {min} {}", units[0].0));
        }
        if value > *max {
            return Err(format!("`{text}` is too large; {name} is at most {max} {}", units[0].0));
        }
        Ok(value.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_parsed() {
        assert_eq!(BANDWIDTH.parse("12.8 GB/s"), Ok(12_800_000_000));
        assert_eq!(BANDWIDTH.parse("100 Gbit/s"), Ok(12_500_000_000));
        assert_eq!(TIME.parse("600 ns"), Ok(600));
        assert_eq!(TIME.parse("1.5us"), Ok(1_500));
        assert_eq!(TIME.parse("2 µs"), Ok(2_000));
        assert_eq!(MESSAGES.parse("20 M/s"), Ok(20_000_000));
        assert_eq!(SIZE.parse(" 256 KiB "), Ok(262_144));
        assert_eq!(SIZE.parse("0 B"), Ok(0));
    }

    #[test]
    fn quantity_errors_name_expected_form() {
        let wrong = |quantity: &Quantity, text| quantity.parse(text).expect_err("a mistake");
        assert_eq!(wrong(&SIZE, "64"), "`64` has no unit; write a size like 64 B or 256 KiB");
        assert_eq!(wrong(&SIZE, "-8 B"), "`-8 B` is negative; a size cannot be negative");
        assert_eq!(wrong(&SIZE, "8 b"), "invalid unit `b` of a size; units are B, KB, MB, GB, KiB, MiB, GiB");
        assert_eq!(wrong(&TIME, "soon"), "`soon` is not a time; write it like 600 ns or 1.5 us");
        assert_eq!(wrong(&TIME, "1.2.3 ns"), "`1.2.3 ns` is not a time; write it like 600 ns or 1.5 us");
        assert_eq!(wrong(&BANDWIDTH, "0 GB/s"), "`0 GB/s` is too small; a bandwidth is at least 1 B/s");
        assert_eq!(wrong(&TIME, "2000000 s"), "`2000000 s` is too large; a time is at most 3600000000000 ns");
        for text in ["", "nan ns", "inf s", "--1 B", "1e3 B", "+-1 ns", "."] {
            assert!(TIME.parse(text).is_err(), "{text}");
        }
    }
}
