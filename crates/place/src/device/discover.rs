//! Discovery of the devices of this machine.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "opencl", feature = "cuda"))]
use super::driver::Driver;
use super::emulated::{Emulated, Rate};
use super::pool::{CpuPool, PoolConfig};
use super::{ComputeDevice, DeviceError, DeviceKind};
use crate::model::{SLOTS_MAX, units};

/// Result of the discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// Devices that were found, in the order of preference: accelerators last.
    pub present: Vec<FoundDevice>,
    /// Devices that were not found, each with the reason.
    pub absent: Vec<DeviceError>,
}

/// Device that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice {
    /// Argument of [`open`]: `cpu`, `opencl:0`.
    pub choice: DeviceChoice,
    /// Description for people.
    pub about: String,
}

/// Searches for devices; loads the libraries of OpenCL and CUDA if they are present.
#[must_use]
pub fn discover() -> Discovery {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = FoundDevice { choice: DeviceChoice::cpu(threads), about: format!("{threads} threads of this process") };
    let mut found = Discovery { present: vec![cpu], absent: Vec::new() };
    for kind in [DeviceChoice::OpenCl, DeviceChoice::Cuda] {
        match driver(kind(0).kind()).and_then(|(describe, _)| describe()) {
            Ok(all) => {
                found.present.extend(all.into_iter().zip(0..).map(|(about, n)| FoundDevice { choice: kind(n), about }))
            }
            Err(error) => found.absent.push(error),
        }
    }
    found
}

/// Device to open, as written in files and on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChoice {
    /// `cpu`, or `cpu:4`: 4 threads; `cpu:4@0,2`: pinned to these processors in turn.
    Cpu {
        /// Number of threads.
        threads: usize,
        /// Processors that the threads are pinned to; empty: any.
        processors: Vec<usize>,
    },
    /// `opencl:1`: the device with this index; `opencl` is the first.
    OpenCl(usize),
    /// `cuda:1`: the device with this index.
    Cuda(usize),
    /// `emulated:slots=2,per-job=10us,bytes-per-second=1000000000,latency=2us,per-job.pack=30us`; every part is
    /// optional. The last one applies to the task `pack` only.
    Emulated(Rate),
}

impl DeviceChoice {
    /// CPU device with this number of threads, not pinned.
    #[must_use]
    pub const fn cpu(threads: usize) -> Self {
        Self::Cpu { threads, processors: Vec::new() }
    }

    /// Kind of the device.
    #[must_use]
    pub const fn kind(&self) -> DeviceKind {
        match self {
            Self::Cpu { .. } => DeviceKind::Cpu,
            Self::OpenCl(_) => DeviceKind::OpenCl,
            Self::Cuda(_) => DeviceKind::Cuda,
            Self::Emulated(_) => DeviceKind::Emulated,
        }
    }
}

impl fmt::Display for DeviceChoice {
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

/// Error of an invalid device choice: the text, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid device `{0}`: {1}")]
pub struct DeviceChoiceError(String, String);

impl std::str::FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, DeviceChoiceError> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let number = || match rest {
            Some(rest) => rest.parse().map_err(|_| format!("expected the number of a device, like {kind}:0")),
            None => Ok(0),
        };
        let choice = match kind {
            "cpu" => threads(rest),
            "opencl" => number().map(Self::OpenCl),
            "cuda" => number().map(Self::Cuda),
            "emulated" => rate(rest.unwrap_or_default()).map(Self::Emulated),
            _ => Err("expected cpu, cpu:THREADS, cpu:THREADS@PROCESSOR,…, opencl:N, cuda:N, or \
                      emulated:per-job=10us,slots=2"
                .to_owned()),
        };
        choice.map_err(|reason| DeviceChoiceError(text.into(), reason))
    }
}

/// Parses `4@0,2`, or returns what is wrong.
fn threads(text: Option<&str>) -> Result<DeviceChoice, String> {
    let Some(text) = text else {
        return Ok(DeviceChoice::cpu(std::thread::available_parallelism().map_or(1, usize::from)));
    };
    let (threads, processors) = text.split_once('@').map_or((text, None), |(threads, on)| (threads, Some(on)));
    let processors = processors.into_iter().flat_map(|on| on.split(','));
    let number = |one: &str| one.parse().map_err(|_| format!("`{one}` is no processor; write numbers, like cpu:2@0,1"));
    let processors = processors.map(number).collect::<Result<_, _>>()?;
    Ok(DeviceChoice::Cpu { threads: slots("threads", threads)?, processors })
}

/// Parses `slots=2,per-job=10us,per-job.pack=30us`, or returns what is wrong.
fn rate(text: &str) -> Result<Rate, String> {
    let mut rate = Rate::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("`{part}` has no value; write KEY=VALUE, like slots=2"))?;
        if seen.contains(&key) {
            return Err(format!("the key `{key}` is given twice; keep one"));
        }
        seen.push(key);
        match key {
            "slots" => rate.slots = slots(key, value)?,
            "per-job" => rate.per_job = duration(value)?,
            "bytes-per-second" => {
                let wrong = |_| format!("`{value}` is no number of bytes per second; write it like 1000000000");
                rate.bytes_per_second = value.parse().map_err(wrong)?;
            }
            "latency" => rate.latency = duration(value)?,
            _ => match key.strip_prefix("per-job.") {
                Some(task) => rate.per_task.push((task.into(), duration(value)?)),
                None => {
                    let keys = "slots, per-job, per-job.TASK, bytes-per-second, latency";
                    return Err(format!("unknown key `{key}`; keys are {keys}"));
                }
            },
        }
    }
    Ok(rate)
}

/// Parses a number of threads or slots.
fn slots(what: &str, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|slots| (1..=SLOTS_MAX).contains(slots));
    number.ok_or_else(|| format!("invalid {what} `{text}`; write a number from 1 to {SLOTS_MAX}"))
}

/// Parses `10us`, `3ms`, `250ns`, `1s`.
fn duration(text: &str) -> Result<Duration, String> {
    units::TIME.parse(text).map(Duration::from_nanos)
}

/// Opens a device.
///
/// # Errors
/// [`DeviceError::Absent`]: the device is not present; [`DeviceError::Failed`]: it cannot be used.
pub fn open(choice: &DeviceChoice) -> Result<Arc<dyn ComputeDevice>, DeviceError> {
    let failed = |error: io::Error| DeviceError::Failed { device: choice.to_string(), reason: error.to_string() };
    match choice {
        DeviceChoice::Cpu { threads, processors } => {
            let config = PoolConfig { processors: processors.clone(), ..PoolConfig::new(*threads) };
            Ok(Arc::new(CpuPool::start(&config).map_err(failed)?))
        }
        DeviceChoice::Emulated(rate) => {
            Ok(Arc::new(Emulated::start("model", rate.clone(), Vec::new()).map_err(failed)?))
        }
        DeviceChoice::OpenCl(number) | DeviceChoice::Cuda(number) => driver(choice.kind())?.1(*number),
    }
}

/// Functions of an accelerator's driver: descriptions of the devices, and opening of one.
type AcceleratorDriver =
    (fn() -> Result<Vec<String>, DeviceError>, fn(usize) -> Result<Arc<dyn ComputeDevice>, DeviceError>);

fn driver(kind: DeviceKind) -> Result<AcceleratorDriver, DeviceError> {
    match kind {
        #[cfg(feature = "opencl")]
        DeviceKind::OpenCl => Ok((Driver::<super::opencl::Queues>::describe, Driver::<super::opencl::Queues>::open)),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda => Ok((Driver::<super::cuda::Streams>::describe, Driver::<super::cuda::Streams>::open)),
        kind => {
            let reason = format!("built without it: build with the feature `{kind}`");
            Err(DeviceError::Absent { device: kind.to_string(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_choice_text_round_trips() {
        let emulated = "emulated:slots=2,per-job=10000ns,bytes-per-second=5,latency=1ns";
        let by_task = format!("{emulated},per-job.pack=30000ns,per-job.look-up=5ns");
        for text in ["cpu:2", "cpu:4@0,2", "opencl:0", "cuda:3", emulated, &by_task] {
            assert_eq!(text.parse::<DeviceChoice>().expect("a choice").to_string(), text);
        }
    }

    #[test]
    fn device_choice_error_names_key_and_remedy() {
        let expected = "expected cpu, cpu:THREADS, cpu:THREADS@PROCESSOR,…, opencl:N, cuda:N, or \
                        emulated:per-job=10us,slots=2";
        let keys = "keys are slots, per-job, per-job.TASK, bytes-per-second, latency";
        let number = "write a number from 1 to 65536";
        for (text, reason) in [
            ("gpu", expected),
            ("cpu@1", expected),
            ("cpu:0", &*format!("invalid threads `0`; {number}")),
            ("cpu:x", &format!("invalid threads `x`; {number}")),
            ("cpu:99999999999", &format!("invalid threads `99999999999`; {number}")),
            ("cpu:1@", "`` is no processor; write numbers, like cpu:2@0,1"),
            ("cpu:1@0,x", "`x` is no processor; write numbers, like cpu:2@0,1"),
            ("opencl:first", "expected the number of a device, like opencl:0"),
            ("emulated:slots=0", &format!("invalid slots `0`; {number}")),
            ("emulated:slots", "`slots` has no value; write KEY=VALUE, like slots=2"),
            ("emulated:slots=1,slots=2", "the key `slots` is given twice; keep one"),
            ("emulated:per-job.a=1us,per-job.a=2us", "the key `per-job.a` is given twice; keep one"),
            ("emulated:per-job=1", "`1` has no unit; write a time like 600 ns or 1.5 us"),
            ("emulated:bytes-per-second=fast", "`fast` is no number of bytes per second; write it like 1000000000"),
            ("emulated:slots=2,rate=1us", &format!("unknown key `rate`; {keys}")),
        ] {
            let message = text.parse::<DeviceChoice>().expect_err(text).to_string();
            assert_eq!(message, format!("invalid device `{text}`: {reason}"));
        }
    }

    #[test]
    fn absent_device_is_reported_with_reason() {
        let Discovery { present, absent } = discover();
        assert_eq!(present[0].choice.kind(), DeviceKind::Cpu);
        for kind in [DeviceKind::OpenCl, DeviceKind::Cuda] {
            let there = present.iter().any(|device| device.choice.kind() == kind);
            let named = absent.iter().any(|device| device.to_string().starts_with(kind.name()));
            assert!(there != named, "{kind}: {present:?} {absent:?}");
        }
        let cuda = absent.iter().find(|device| device.to_string().starts_with("cuda"));
        let remedy = if cfg!(feature = "cuda") { "install" } else { "feature" };
        assert!(cuda.is_none_or(|cuda| cuda.to_string().contains(remedy)), "{cuda:?}");
        let none = open(&DeviceChoice::OpenCl(4096)).expect_err("enough bytes").to_string();
        assert!(none.starts_with("opencl"), "{none}");
    }
}
