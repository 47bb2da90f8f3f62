//! What devices are there, and which are not and why.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::emulated::{Emulated, Rate};
use super::pool::{Pool, PoolConfig};
use super::{Device, DeviceError, Kind};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// What is there, in the order in which it is tried: accelerators last.
    pub present: Vec<Present>,
    /// What is not: one line each, with the reason.
    pub absent: Vec<DeviceError>,
}

/// A device that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// What [`open`] takes: `cpu`, `opencl:0`.
    pub choice: Choice,
    /// What it is, for people.
    pub about: String,
}

/// Looks for devices: loads the libraries of OpenCL and CUDA, if they are there.
#[must_use]
pub fn discover() -> Discovery {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = Discovery::default();
    found.present.push(Present { choice: Choice::cpu(threads), about: format!("{threads} threads of this process") });
    opencl_devices(&mut found);
    cuda_devices(&mut found);
    found
}

/// Which device to open, as files and the command line say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// `cpu`, or `cpu:4`: so many threads; `cpu:4@0,2`: on these processors in turn, and nowhere else.
    Cpu {
        /// Threads.
        threads: usize,
        /// Processors that they run on; none: any.
        processors: Vec<usize>,
    },
    /// `opencl:1`: the device of that number; `opencl` is the first.
    OpenCl(usize),
    /// `cuda:1`, likewise.
    Cuda(usize),
    /// `emulated:slots=2,per-job=10us,bytes-per-second=1000000000,latency=2us,per-job.pack=30us`; each may be left
    /// out. The last is of the task `pack` alone.
    Emulated(Rate),
}

impl Choice {
    /// So many threads, on any processor.
    #[must_use]
    pub const fn cpu(threads: usize) -> Self {
        Self::Cpu { threads, processors: Vec::new() }
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Cpu { .. } => Kind::Cpu,
            Self::OpenCl(_) => Kind::OpenCl,
            Self::Cuda(_) => Kind::Cuda,
            Self::Emulated(_) => Kind::Emulated,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { threads, processors } => {
                write!(f, "cpu:{threads}")?;
                processors
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, one)| write!(f, "{}{one}", if at == 0 { '@' } else { ',' }))
            }
            Self::OpenCl(number) => write!(f, "opencl:{number}"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Emulated(Rate { slots, per_job, per_task, bytes_per_second, latency }) => {
                write!(f, "emulated:slots={slots},per-job={}ns", per_job.as_nanos())?;
                write!(f, ",bytes-per-second={bytes_per_second},latency={}ns", latency.as_nanos())?;
                per_task.iter().try_for_each(|(task, time)| write!(f, ",per-job.{task}={}ns", time.as_nanos()))
            }
        }
    }
}

/// A choice that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no device: expected cpu, cpu:THREADS, cpu:THREADS@PROCESSOR,…, opencl:N, cuda:N, or emulated:per-job=10us,slots=2"
)]
pub struct ChoiceError(String);

impl std::str::FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let wrong = || ChoiceError(text.into());
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let number = |or| rest.map_or(Ok(or), |rest| rest.parse().map_err(|_| wrong()));
        match kind {
            "cpu" => threads(rest).ok_or_else(wrong),
            "opencl" => number(0).map(Self::OpenCl),
            "cuda" => number(0).map(Self::Cuda),
            "emulated" => rate(rest.unwrap_or_default()).map(Self::Emulated).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

/// `4@0,2`.
fn threads(text: Option<&str>) -> Option<Choice> {
    let Some(text) = text else {
        return Some(Choice::cpu(std::thread::available_parallelism().map_or(1, usize::from)));
    };
    let (threads, processors) = text.split_once('@').map_or((text, None), |(threads, on)| (threads, Some(on)));
    let processors = processors.into_iter().flat_map(|on| on.split(','));
    let processors = processors.map(|one| one.parse().ok()).collect::<Option<_>>()?;
    let threads = threads.parse().ok().filter(|threads| *threads > 0)?;
    Some(Choice::Cpu { threads, processors })
}

/// `slots=2,per-job=10us,per-job.pack=30us`.
fn rate(text: &str) -> Option<Rate> {
    let mut rate = Rate::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=')?;
        match key {
            "slots" => rate.slots = value.parse().ok().filter(|slots| *slots > 0)?,
            "per-job" => rate.per_job = duration(value)?,
            "bytes-per-second" => rate.bytes_per_second = value.parse().ok()?,
            "latency" => rate.latency = duration(value)?,
            _ => rate.per_task.push((key.strip_prefix("per-job.")?.into(), duration(value)?)),
        }
    }
    Some(rate)
}

/// `10us`, `3ms`, `250ns`, `1s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).map(Duration::from_nanos)
}

/// Opens a device.
///
/// # Errors
/// [`DeviceError::Absent`]: it is not there; [`DeviceError::Failed`]: it is, and can't be used.
pub fn open(choice: &Choice) -> Result<Arc<dyn Device>, DeviceError> {
    let failed = |error: io::Error| DeviceError::Failed { device: choice.to_string(), reason: error.to_string() };
    match choice {
        Choice::Cpu { threads, processors } => {
            let config = PoolConfig { processors: processors.clone(), ..PoolConfig::new(*threads) };
            Ok(Arc::new(Pool::start(&config).map_err(failed)?))
        }
        Choice::Emulated(rate) => Ok(Arc::new(Emulated::start("model", rate.clone(), Vec::new()).map_err(failed)?)),
        Choice::OpenCl(number) => open_opencl(*number),
        Choice::Cuda(number) => open_cuda(*number),
    }
}

#[cfg(any(feature = "opencl", feature = "cuda"))]
fn numbered<T>(kind: Kind, number: usize, mut found: Vec<T>) -> Result<T, DeviceError> {
    if number < found.len() {
        return Ok(found.swap_remove(number));
    }
    let reason = format!("there are {} of them, numbered from 0", found.len());
    Err(DeviceError::Absent { device: format!("{kind}:{number}"), reason })
}

#[cfg(feature = "opencl")]
fn opencl_devices(to: &mut Discovery) {
    match super::opencl::list() {
        Ok(found) => to.present.extend(found.into_iter().map(|device| {
            let (choice, shares) = (Choice::OpenCl(device.number), device.shares_memory);
            let memory = if shares { "shares the host's memory" } else { "has memory of its own" };
            let about =
                format!("{}; {}; {} compute units; {memory}", device.name, device.platform, device.compute_units);
            Present { choice, about }
        })),
        Err(error) => to.absent.push(error),
    }
}

#[cfg(feature = "opencl")]
fn open_opencl(number: usize) -> Result<Arc<dyn Device>, DeviceError> {
    let found = numbered(Kind::OpenCl, number, super::opencl::list()?)?;
    Ok(Arc::new(super::opencl::OpenCl::open(&found)?))
}

#[cfg(not(feature = "opencl"))]
fn opencl_devices(to: &mut Discovery) {
    to.absent.push(left_out(Kind::OpenCl));
}

#[cfg(not(feature = "opencl"))]
fn open_opencl(_: usize) -> Result<Arc<dyn Device>, DeviceError> {
    Err(left_out(Kind::OpenCl))
}

#[cfg(feature = "cuda")]
fn cuda_devices(to: &mut Discovery) {
    match super::cuda::list() {
        Ok(found) => to.present.extend(found.into_iter().map(|device| {
            let about = format!("{}; {} MiB", device.name, device.memory >> 20);
            Present { choice: Choice::Cuda(device.number), about }
        })),
        Err(error) => to.absent.push(error),
    }
}

#[cfg(feature = "cuda")]
fn open_cuda(number: usize) -> Result<Arc<dyn Device>, DeviceError> {
    let found = numbered(Kind::Cuda, number, super::cuda::list()?)?;
    Ok(Arc::new(super::cuda::Cuda::open(&found)?))
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices(to: &mut Discovery) {
    to.absent.push(left_out(Kind::Cuda));
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_: usize) -> Result<Arc<dyn Device>, DeviceError> {
    Err(left_out(Kind::Cuda))
}

#[cfg(any(not(feature = "opencl"), not(feature = "cuda")))]
fn left_out(kind: Kind) -> DeviceError {
    let reason = format!("built without it: build with the feature `{kind}`");
    DeviceError::Absent { device: kind.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        let emulated = "emulated:slots=2,per-job=10000ns,bytes-per-second=5,latency=1ns";
        let by_task = format!("{emulated},per-job.pack=30000ns,per-job.look-up=5ns");
        for text in ["cpu:2", "cpu:4@0,2", "opencl:0", "cuda:3", emulated, &by_task] {
            assert_eq!(text.parse::<Choice>().expect("a choice").to_string(), text);
        }
        for text in [
            "gpu",
            "cpu:0",
            "cpu:x",
            "cpu:1@",
            "cpu:1@x",
            "cpu@1",
            "emulated:slots=0",
            "emulated:per-job=1",
            "emulated:rate=1us",
        ] {
            let said = text.parse::<Choice>().expect_err(text).to_string();
            assert!(said.starts_with(&format!("`{text}` is no device: expected cpu")), "{said}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let Discovery { present, absent } = discover();
        assert_eq!(present[0].choice.kind(), Kind::Cpu);
        for kind in [Kind::OpenCl, Kind::Cuda] {
            let there = present.iter().any(|device| device.choice.kind() == kind);
            let named = absent.iter().any(|device| device.to_string().starts_with(kind.name()));
            assert!(there != named, "{kind}: {present:?} {absent:?}");
        }
        let cuda = absent.iter().find(|device| device.to_string().starts_with("cuda"));
        assert!(cuda.is_none_or(|cuda| cuda.to_string().contains("install")), "{cuda:?}");
        let none = open(&Choice::OpenCl(4096)).expect_err("so many").to_string();
        assert!(none.starts_with("opencl"), "{none}");
    }
}
