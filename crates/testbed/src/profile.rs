//! Properties of links, in the syntax of `tc`: `1gbit`, `0.1%`, `5ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Properties of a link, the same in both directions.
///
/// The default is a bare link: as fast as the processors, and without faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkProfile {
    /// Bits per second, counting frames from their Ethernet header. Default: no limit.
    pub rate: Option<LinkRate>,
    /// Length of the queue in bytes; further frames are dropped. Default: 256 full frames.
    pub queue_bytes: Option<u32>,
    /// Queue length in bytes from which ECN-capable frames are marked "congestion experienced". Default: never. Like a
    /// switch that marks at a long queue, but the queue length is computed, at 95 % of the rate, so that a standing
    /// queue drains.
    pub mark_bytes: Option<u32>,
    /// Share of lost frames.
    pub loss: FrameShare,
    /// Share of frames that arrive twice.
    pub repeat: FrameShare,
    /// Share of ECN-capable frames that arrive marked "congestion experienced".
    pub ce: FrameShare,
    /// Delay of every frame except the reordered ones. Threads of the testbed's owner read and write frames one by one,
    /// so the wait for a processor adds to the delay.
    pub delay: LinkDelay,
    /// Share of frames without delay, which overtake others.
    pub reorder: FrameShare,
    /// Frames pass a wire even without other properties: it counts them, and buffers up to 4,096 of them for a slow
    /// receiver.
    pub wired: bool,
}

impl LinkProfile {
    /// True if the link has no properties.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        *self == Self::default()
    }
}

/// Rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkRate(u64);

impl LinkRate {
    /// Below this rate, a full frame takes longer than a second.
    pub const MIN: Self = Self(16_000);
    /// veth does not reach higher rates.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// Returns `None` outside [`LinkRate::MIN`] to [`LinkRate::MAX`].
    #[must_use]
    pub fn bits_per_s(bits: u64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&Self(bits)).then_some(Self(bits))
    }

    /// Bits per second.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl FromStr for LinkRate {
    type Err = LinkValueError;

    fn from_str(word: &str) -> Result<Self, LinkValueError> {
        let error =
            || LinkValueError { got: word.to_owned(), expected: "a rate from 16kbit to 1000gbit, as in 1.5gbit" };
        let lower = word.to_ascii_lowercase();
        let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
        let (number, unit) =
            units.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, unit))).ok_or_else(error)?;
        let bits = number.parse::<f64>().map_err(|_| error())? * unit;
        // Casts of floats saturate, and NaN becomes zero: both are out of range.
        Self::bits_per_s(bits.round() as u64).ok_or_else(error)
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits => write!(f, "{}kbit", bits as f64 / 1e3),
        }
    }
}

/// Share of all frames, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameShare(u32);

impl FrameShare {
    /// All frames.
    pub const ALL: Self = Self(1_000_000);

    /// Returns `None` above [`FrameShare::ALL`].
    #[must_use]
    pub fn ppm(ppm: u32) -> Option<Self> {
        (Self(ppm) <= Self::ALL).then_some(Self(ppm))
    }

    /// Share in millionths.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// True if not zero.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 > 0
    }
}

impl FromStr for FrameShare {
    type Err = LinkValueError;

    fn from_str(word: &str) -> Result<Self, LinkValueError> {
        let error = || LinkValueError { got: word.to_owned(), expected: "a share from 0% to 100%, as in 0.1%" };
        let percent: f64 = word.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(error)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(error());
        }
        let millionths = percent * 1e4;
        if percent > 0.0 && millionths < 1.0 {
            return Err(LinkValueError { expected: "a share of no less than 0.0001%", ..error() });
        }
        Ok(Self(millionths.round() as u32))
    }
}

impl fmt::Display for FrameShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// Delay of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkDelay(Duration);

impl LinkDelay {
    /// Limit, since delayed frames are kept in memory.
    pub const MAX: Self = Self(Duration::from_secs(1));

    /// Returns `None` above [`LinkDelay::MAX`].
    #[must_use]
    pub fn of(delay: Duration) -> Option<Self> {
        (Self(delay) <= Self::MAX).then_some(Self(delay))
    }

    /// Delay as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }

    /// True if not zero.
    #[must_use]
    pub fn is_some(self) -> bool {
        !self.0.is_zero()
    }
}

impl FromStr for LinkDelay {
    type Err = LinkValueError;

    fn from_str(word: &str) -> Result<Self, LinkValueError> {
        let error =
            || LinkValueError { got: word.to_owned(), expected: "a delay from 0ms to 1s, as in 2.5ms or 300us" };
        // Longer suffixes first.
        let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let (number, unit) =
            units.iter().find_map(|(name, unit)| Some((word.strip_suffix(name)?, unit))).ok_or_else(error)?;
        let seconds = number.parse::<f64>().map_err(|_| error())? * unit;
        Duration::try_from_secs_f64(seconds).ok().and_then(Self::of).ok_or_else(error)
    }
}

impl fmt::Display for LinkDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_secs_f64() * 1e3)
    }
}

/// Error: invalid rate, share or delay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got:?}")]
pub struct LinkValueError {
    got: String,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_like_tc() {
        for (word, bits) in
            [("1gbit", 1_000_000_000), ("100Mbit", 100_000_000), ("1.5gbit", 1_500_000_000), ("16kbit", 16_000)]
        {
            let rate: LinkRate = word.parse().unwrap();
            assert_eq!(rate.bits(), bits);
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for word in ["", "1", "gbit", "-1gbit", "nangbit", "infgbit", "1gbit/s", "15kbit", "1001gbit", "1 gbit"] {
            let error = word.parse::<LinkRate>().unwrap_err().to_string();
            assert_eq!(error, format!("expected a rate from 16kbit to 1000gbit, as in 1.5gbit, got {word:?}"));
        }
    }

    #[test]
    fn delays_need_unit() {
        for (word, us) in [("0ms", 0), ("5ms", 5000), ("2.5ms", 2500), ("300us", 300), ("1s", 1_000_000)] {
            let delay: LinkDelay = word.parse().unwrap();
            assert_eq!(delay.duration(), Duration::from_micros(us));
            assert_eq!(delay.to_string().parse(), Ok(delay));
        }
        for word in ["", "5", "ms", "-1ms", "nanms", "infs", "1.1s", "5 ms", "5min"] {
            assert!(word.parse::<LinkDelay>().is_err(), "{word}");
        }
    }

    #[test]
    fn shares_are_percent() {
        for (word, ppm) in [("0%", 0), ("0.1%", 1000), ("100%", 1_000_000), ("0.0001%", 1), ("33.3333%", 333_333)] {
            let share: FrameShare = word.parse().unwrap();
            assert_eq!(share.millionths(), ppm);
            assert_eq!(share.to_string(), word);
        }
        for word in ["", "%", "1", "0.1", "-1%", "101%", "nan%", "0.00001%"] {
            assert!(word.parse::<FrameShare>().is_err(), "{word}");
        }
    }
}
