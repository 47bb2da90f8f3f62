//! Service times of a server: the distributions of NetClone §5.1.2.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Random;

/// Distribution of service times without jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The same time for each call.
    Fixed(Duration),
    /// Exponential distribution: short remote calls.
    Exponential(Duration),
    /// A tenth of the calls takes the longer time: a mix of simple and complex calls.
    Bimodal(Duration, Duration),
}

/// Jitter of a server: a call takes `times` as long with `probability`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// Probability for a call, 0 to 1.
    pub probability: f64,
    /// Factor of the service time.
    pub times: f64,
}

/// Error: the text is no distribution or jitter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got:?}")]
pub struct ParseError {
    expected: &'static str,
    got: String,
}

/// Share of calls of [`Service::Bimodal`] with the longer time.
const LONGER: f64 = 0.1;

impl Service {
    /// Service time of one call.
    pub fn draw(self, random: &mut Random) -> Duration {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential(mean) => random.exponential(mean),
            Self::Bimodal(_, longer) if random.happens(LONGER) => longer,
            Self::Bimodal(shorter, _) => shorter,
        }
    }

    /// Mean service time.
    #[must_use]
    pub fn mean(self) -> Duration {
        match self {
            Self::Fixed(time) | Self::Exponential(time) => time,
            Self::Bimodal(shorter, longer) => shorter.mul_f64(1.0 - LONGER) + longer.mul_f64(LONGER),
        }
    }
}

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self { probability: 0.0, times: 1.0 };
    /// High variability, the paper's usual case: 15 times the service time with p = 0.01.
    pub const HIGH: Self = Self { probability: 0.01, times: 15.0 };
    /// Low variability: 15 times the service time with p = 0.001.
    pub const LOW: Self = Self { probability: 0.001, times: 15.0 };

    /// Service time with jitter of a call that takes `time` without.
    pub fn draw(self, time: Duration, random: &mut Random) -> Duration {
        if random.happens(self.probability) { time.mul_f64(self.times) } else { time }
    }

    /// Factor by which jitter raises the mean.
    #[must_use]
    pub fn factor(self) -> f64 {
        1.0 + self.probability * (self.times - 1.0)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(time) => write!(f, "fixed:{time:?}"),
            Self::Exponential(mean) => write!(f, "exp:{mean:?}"),
            Self::Bimodal(shorter, longer) => write!(f, "bimodal:{shorter:?},{longer:?}"),
        }
    }
}

impl FromStr for Service {
    type Err = ParseError;

    /// Parses the `Display` form of [`Service`]: `fixed:4ms`, `exp:25us`, `bimodal:25us,250us`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "fixed:TIME, exp:MEAN or bimodal:TIME,TIME, as in exp:4ms";
        let parse = || {
            let (kind, times) = text.split_once(':')?;
            match (kind, times.split_once(',')) {
                ("fixed", None) => Some(Self::Fixed(duration(times)?)),
                ("exp", None) => Some(Self::Exponential(duration(times)?)),
                ("bimodal", Some((shorter, longer))) => Some(Self::Bimodal(duration(shorter)?, duration(longer)?)),
                _ => None,
            }
        };
        parse().ok_or_else(|| ParseError { expected, got: text.to_owned() })
    }
}

impl FromStr for Jitter {
    type Err = ParseError;

    /// Parses `0.01x15`: 15 times the service time with probability 0.01; or `none`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let parse = || {
            let (probability, times) = text.split_once('x')?;
            let jitter = Self { probability: probability.parse().ok()?, times: times.parse().ok()? };
            ((0.0..=1.0).contains(&jitter.probability) && (1.0..=1e6).contains(&jitter.times)).then_some(jitter)
        };
        parse().ok_or_else(|| ParseError { expected: "PxN, as in 0.01x15, or none", got: text.to_owned() })
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { write!(f, "none") } else { write!(f, "{}x{}", self.probability, self.times) }
    }
}

/// Parses a time in whole us, ms or s.
fn duration(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let count: u64 = number.parse().ok()?;
    match &text[number.len()..] {
        "us" | "µs" => Some(Duration::from_micros(count)),
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn draws_have_specified_mean() {
        let services = [Service::Fixed(US(25)), Service::Exponential(US(25)), Service::Bimodal(US(25), US(250))];
        for service in services {
            for jitter in [Jitter::NONE, Jitter::HIGH] {
                let (mut random, draws) = (Random::new(3), 400_000);
                let one = |random: &mut Random| {
                    let time = service.draw(random);
                    jitter.draw(time, random).as_secs_f64()
                };
                let mean = (0..draws).map(|_| one(&mut random)).sum::<f64>() / f64::from(draws);
                let expected = service.mean().as_secs_f64() * jitter.factor();
                assert!((mean / expected - 1.0).abs() < 0.02, "{service} {jitter}: {mean} {expected}");
            }
        }
    }

    #[test]
    fn display_form_round_trips() {
        for text in ["fixed:4ms", "exp:25µs", "bimodal:25µs,250µs", "exp:2s"] {
            assert_eq!(text.parse::<Service>().map(|service| service.to_string()), Ok(text.to_owned()));
        }
        for text in ["0.01x15", "none"] {
            assert_eq!(text.parse::<Jitter>().map(|jitter| jitter.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn invalid_time_is_refused() {
        for text in ["", "exp", "exp:", "exp:4", "exp:-4ms", "exp:4ms,5ms", "bimodal:4ms", "gauss:4ms", "exp:4h"] {
            let error = text.parse::<Service>().expect_err(text);
            assert!(error.to_string().ends_with(&format!("got {text:?}")), "{error}");
        }
        for text in ["", "0.01", "2x15", "0.01x0", "-1x15", "NaNx15", "0.01xinf"] {
            assert!(text.parse::<Jitter>().is_err(), "{text}");
        }
    }
}
