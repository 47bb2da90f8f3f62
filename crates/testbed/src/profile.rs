//! What a link is like, in the words of `tc`: `1gbit`, `0.1%`, `5ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a link does to frames, the same in both directions.
///
/// The default is a bare link: as fast as the processors, and without faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// Bits a second, of frames from their Ethernet header on; no limit, unless given.
    pub rate: Option<Rate>,
    /// Bytes of frames that may wait for the rate; further ones are lost. 256 full frames, unless given.
    pub queue_bytes: Option<u32>,
    /// Bytes of frames that may have come beyond the rate before further ones are marked "congestion
    /// experienced", those of them that can bear it; none are, unless given. As in a switch that marks where its
    /// queue is long, but the queue is reckoned, at 95 % of the rate: a real one that stays is worked off.
    pub mark_bytes: Option<u32>,
    /// Frames that are lost.
    pub loss: Share,
    /// Frames that arrive twice.
    pub repeat: Share,
    /// Frames that arrive with the mark "congestion experienced", of those that can bear it.
    pub ce: Share,
    /// How long every frame takes, but for those that `reorder` means. Threads of the bed's owner see to it,
    /// and read and write frames one by one: they are late by as much as they wait for a processor.
    pub delay: Delay,
    /// Frames that take no time, and so overtake others.
    pub reorder: Share,
    /// Whether frames pass a wire although nothing is done to them: to be counted, and to wait, up to
    /// 4,096 of them, rather than get lost where their receiver is slower than they come.
    pub wired: bool,
}

impl Profile {
    /// Whether frames are left alone.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        *self == Self::default()
    }
}

/// Bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// Slower, a full frame takes longer than a second.
    pub const MIN: Self = Self(16_000);
    /// Faster ones, veth does not reach.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// None outside [`Rate::MIN`] to [`Rate::MAX`].
    #[must_use]
    pub fn bits_per_s(bits: u64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&Self(bits)).then_some(Self(bits))
    }

    /// In bits a second.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = WordError;

    fn from_str(word: &str) -> Result<Self, WordError> {
        let error = || WordError { got: word.to_owned(), expected: "a rate from 16kbit to 1000gbit, as in 1.5gbit" };
        let lower = word.to_ascii_lowercase();
        let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
        let (number, unit) =
            units.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, unit))).ok_or_else(error)?;
        let bits = number.parse::<f64>().map_err(|_| error())? * unit;
        // Casts of floats saturate, and NaN becomes zero: both are out of range.
        Self::bits_per_s(bits.round() as u64).ok_or_else(error)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits => write!(f, "{}kbit", bits as f64 / 1e3),
        }
    }
}

/// A share of all frames, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Every frame.
    pub const ALL: Self = Self(1_000_000);

    /// None above [`Share::ALL`].
    #[must_use]
    pub fn ppm(ppm: u32) -> Option<Self> {
        (Self(ppm) <= Self::ALL).then_some(Self(ppm))
    }

    /// In millionths.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// Whether any frame is meant.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 > 0
    }
}

impl FromStr for Share {
    type Err = WordError;

    fn from_str(word: &str) -> Result<Self, WordError> {
        let error = || WordError { got: word.to_owned(), expected: "a share from 0% to 100%, as in 0.1%" };
        let percent: f64 = word.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(error)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(error());
        }
        let millionths = percent * 1e4;
        if percent > 0.0 && millionths < 1.0 {
            return Err(WordError { expected: "a share of no less than 0.0001%", ..error() });
        }
        Ok(Self(millionths.round() as u32))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// How long a frame takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(Duration);

impl Delay {
    /// What waits is kept in memory.
    pub const MAX: Self = Self(Duration::from_secs(1));

    /// None above [`Delay::MAX`].
    #[must_use]
    pub fn of(delay: Duration) -> Option<Self> {
        (Self(delay) <= Self::MAX).then_some(Self(delay))
    }

    /// As a time.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_some(self) -> bool {
        !self.0.is_zero()
    }
}

impl FromStr for Delay {
    type Err = WordError;

    fn from_str(word: &str) -> Result<Self, WordError> {
        let error = || WordError { got: word.to_owned(), expected: "a delay from 0ms to 1s, as in 2.5ms or 300us" };
        // Longer suffixes first.
        let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let (number, unit) =
            units.iter().find_map(|(name, unit)| Some((word.strip_suffix(name)?, unit))).ok_or_else(error)?;
        let seconds = number.parse::<f64>().map_err(|_| error())? * unit;
        Duration::try_from_secs_f64(seconds).ok().and_then(Self::of).ok_or_else(error)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_secs_f64() * 1e3)
    }
}

/// A rate, share or delay that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got:?}")]
pub struct WordError {
    got: String,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_tc_reads_them() {
        for (word, bits) in
            [("1gbit", 1_000_000_000), ("100Mbit", 100_000_000), ("1.5gbit", 1_500_000_000), ("16kbit", 16_000)]
        {
            let rate: Rate = word.parse().unwrap();
            assert_eq!(rate.bits(), bits);
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for word in ["", "1", "gbit", "-1gbit", "nangbit", "infgbit", "1gbit/s", "15kbit", "1001gbit", "1 gbit"] {
            let error = word.parse::<Rate>().unwrap_err().to_string();
            assert_eq!(error, format!("expected a rate from 16kbit to 1000gbit, as in 1.5gbit, got {word:?}"));
        }
    }

    #[test]
    fn delays_have_units() {
        for (word, us) in [("0ms", 0), ("5ms", 5000), ("2.5ms", 2500), ("300us", 300), ("1s", 1_000_000)] {
            let delay: Delay = word.parse().unwrap();
            assert_eq!(delay.duration(), Duration::from_micros(us));
            assert_eq!(delay.to_string().parse(), Ok(delay));
        }
        for word in ["", "5", "ms", "-1ms", "nanms", "infs", "1.1s", "5 ms", "5min"] {
            assert!(word.parse::<Delay>().is_err(), "{word}");
        }
    }

    #[test]
    fn shares_are_percent() {
        for (word, ppm) in [("0%", 0), ("0.1%", 1000), ("100%", 1_000_000), ("0.0001%", 1), ("33.3333%", 333_333)] {
            let share: Share = word.parse().unwrap();
            assert_eq!(share.millionths(), ppm);
            assert_eq!(share.to_string(), word);
        }
        for word in ["", "%", "1", "0.1", "-1%", "101%", "nan%", "0.00001%"] {
            assert!(word.parse::<Share>().is_err(), "{word}");
        }
    }
}
