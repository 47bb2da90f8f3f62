//! Measurement of the devices and links of this machine (LEO §III-A).
//!
//! ```text
//! one job at a time: time through an idle device, and its variation
//! all slots full:    jobs per second
//! long messages:     bytes per second
//! ```

use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::bounded;

use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceKind, FunctionId, Job, Kernel, Region, TaskCode,
    WorkItemCount,
};
use crate::context::comm::{CommEvent, CommFunction, CommStart, Inbox, RequestHead};
use crate::context::remote::Remote;
use crate::model::DeviceRole;

/// Default measuring time for each number.
pub const BUDGET: Duration = Duration::from_millis(200);
/// Number of jobs in flight under load, or twice a device's slots if that is more, with a limit.
const MANY: usize = 16;
const MANY_MAX: usize = 1024;
/// Length of a short message and of a long one, in bytes.
const SHORT: usize = 64;
const LONG: usize = 1 << 20;
/// Timeout of a silent device or network; longer than pauses of a machine.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Error of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurementError {
    /// The device cannot do the measurement.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A job failed.
    #[error("{device}: {reason}")]
    Failed {
        /// Name of the device.
        device: String,
        /// Reason of the failure.
        reason: String,
    },
}

/// Measured speed of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferProfile {
    /// Bytes per second, with messages of 1 MiB.
    pub bytes_per_second: u64,
    /// Messages per second, with messages of 64 bytes.
    pub messages_per_second: u64,
    /// One-way delay of a message of 64 bytes in nanoseconds: half of the round-trip time.
    pub latency_ns: u64,
}

/// Measured times of a function on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeProfile {
    /// Median time through the idle device in nanoseconds.
    pub latency_ns: u64,
    /// 90th percentile above the median, in nanoseconds.
    pub noise_ns: u64,
    /// Time between two answers when all slots are full, in nanoseconds.
    pub busy_ns: u64,
    /// Slot time of each job in nanoseconds, at most the time through the idle device; transmission delays are
    /// excluded by means of the rate.
    pub job_ns: u64,
}

/// Measures a function with this request.
///
/// # Errors
/// [`MeasurementError`]: the device fails, or does not respond.
pub fn compute(
    device: &dyn ComputeDevice,
    function: FunctionId,
    request: &Bytes,
    answer_max: usize,
    budget: Duration,
) -> Result<ComputeProfile, MeasurementError> {
    let mut run = Run::new(device, function, request.clone(), answer_max.max(request.len()))?;
    // Compilation, caches and wake-ups of the first runs are excluded.
    run.times(Duration::ZERO, 3)?;
    let mut times = run.times(budget / 2, 5)?;
    times.sort_unstable();
    let latency_ns = times[times.len() / 2];
    let noise_ns = times[times.len() * 9 / 10] - latency_ns;
    let busy_ns = run.busy(budget / 2)?;
    let job_ns = busy_ns.saturating_mul(slots(device) as u64).min(latency_ns.max(1));
    Ok(ComputeProfile { latency_ns, noise_ns, busy_ns, job_ns })
}

/// Measures the transfer of requests to a device and of answers back, with a function that does nothing.
///
/// # Errors
/// As [`compute`].
pub fn link(device: &dyn ComputeDevice, budget: Duration) -> Result<TransferProfile, MeasurementError> {
    let function = device.load("nothing", &empty_function(device.info().kind))?;
    let short = compute(device, function, &Bytes::from(vec![1; SHORT]), SHORT, budget)?;
    let long = compute(device, function, &Bytes::from(vec![1; LONG]), SHORT, budget)?;
    // Without copies a reader of the bytes is still limited by the memory's speed.
    Ok(TransferProfile::from_round_times(short.latency_ns, short.busy_ns, long.busy_ns, copy_ns(budget / 4)))
}

/// Measures the network of this host with itself: the communication function of [`Remote`], over the loopback.
///
/// # Errors
/// [`MeasurementError::Failed`].
pub fn network(budget: Duration) -> Result<TransferProfile, MeasurementError> {
    let failed = |reason: String| MeasurementError::Failed { device: "nic".into(), reason };
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let bind = |to| Remote::bind(free, to).map_err(|error| failed(error.to_string()));
    let mut there = bind(None)?;
    let mut here = bind(Some(there.address()))?.timeout(SILENCE_TIMEOUT);
    let origin = Clock::now();
    let clock = std::sync::Arc::new(move || pathcall_wire::Instant(origin.elapsed().as_nanos() as u64));
    let ((to_there, far), (to_here, near)) = (Inbox::new(), Inbox::new());
    for (comm, inbox) in [(&mut there, to_there), (&mut here, to_here)] {
        let start = CommStart { inbox, windows: Default::default(), clock: clock.clone() };
        comm.start(start).map_err(failed)?;
    }
    // The echo thread ends with its inbox, when both ends are dropped.
    let echo = std::thread::spawn(move || {
        for arrival in &far.requests {
            if let CommEvent::Request { payload, reply, .. } = arrival {
                reply.answer(Default::default(), payload.slice(..payload.len().min(SHORT)));
            }
        }
    });
    let head = RequestHead { kind: 0, trip: 0, task: None, role: DeviceRole::Cpu };
    let mut round = |bytes: usize, in_flight: usize, budget: Duration| -> Result<u64, MeasurementError> {
        let payload = Bytes::from(vec![1; bytes]);
        let (began, mut sent, mut came) = (Clock::now(), 0, 0);
        while came == 0 || began.elapsed() < budget {
            while sent - came < in_flight as u64 {
                here.post(sent, head, &payload).map_err(|error| failed(error.to_string()))?;
                sent += 1;
            }
            match near.answers.recv_timeout(SILENCE_TIMEOUT) {
                Ok(CommEvent::Answer { result: Ok(_), .. }) => came += 1,
                other => return Err(failed(format!("no answer: {other:?}"))),
            }
        }
        let nanos = began.elapsed().as_nanos() as u64 / came;
        while came < sent {
            near.answers.recv_timeout(SILENCE_TIMEOUT).map_err(|error| failed(error.to_string()))?;
            came += 1;
        }
        Ok(nanos)
    };
    round(SHORT, 1, budget / 10)?;
    let (alone, short, long) = (round(SHORT, 1, budget)?, round(SHORT, MANY, budget)?, round(LONG, 2, budget)?);
    drop((here, there));
    let _ = echo.join();
    Ok(TransferProfile::from_round_times(alone, short, long, copy_ns(budget / 4)))
}

impl TransferProfile {
    /// Computes a profile from the times between two answers: one message at a time, many short ones, long ones; and
    /// from the time to copy a long one. A pause of the machine may lengthen any of them.
    fn from_round_times(alone_ns: u64, short_ns: u64, long_ns: u64, copy_ns: u64) -> Self {
        // A transfer cannot be faster than a copy.
        let bytes_ns = long_ns.saturating_sub(short_ns).max(copy_ns);
        Self {
            bytes_per_second: per_second(LONG as u64, bytes_ns),
            messages_per_second: per_second(1, short_ns),
            latency_ns: alone_ns / 2,
        }
    }
}

/// Time to copy a long message in memory, in nanoseconds.
fn copy_ns(budget: Duration) -> u64 {
    let (from, mut to) = (vec![1_u8; LONG], vec![0_u8; LONG]);
    let (began, mut copies) = (Clock::now(), 0);
    while copies == 0 || began.elapsed() < budget {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        copies += 1;
    }
    (began.elapsed().as_nanos() as u64 / copies).max(1)
}

/// Rate per second, at least one: a rate of zero is invalid.
fn per_second(count: u64, nanos: u64) -> u64 {
    ((u128::from(count) * 1_000_000_000 / u128::from(nanos.max(1))) as u64).max(1)
}

/// Function that does nothing, for each kind of device.
fn empty_function(kind: DeviceKind) -> TaskCode {
    let kernel = |source: &str| Kernel {
        source: source.into(),
        entry: "nothing".into(),
        options: String::new(),
        items: WorkItemCount::Exactly(1),
        group: 1,
        length: AnswerLength::Exactly(1),
        tables: Vec::new(),
    };
    match kind {
        DeviceKind::Cpu | DeviceKind::Emulated => TaskCode::host(|_, _| Ok(0)),
        DeviceKind::OpenCl => TaskCode::OpenCl(kernel(
            "kernel void nothing(global const uchar *input, uint n, global uchar *output, uint max) { output[0] = 0; }",
        )),
        DeviceKind::Cuda => TaskCode::Cuda(kernel(
            "extern \"C\" __global__ void nothing(const unsigned char *input, unsigned n, unsigned char *output, \
             unsigned max) { output[0] = 0; }",
        )),
    }
}

/// Number of jobs that a device executes in parallel; 1 if jobs are completed in order.
fn slots(device: &dyn ComputeDevice) -> usize {
    let info = device.info();
    if info.in_order { 1 } else { info.slots.max(1) }
}

/// Jobs of one function, with reused memory.
struct Run<'a> {
    device: &'a dyn ComputeDevice,
    function: FunctionId,
    request: Bytes,
    free: Vec<Region>,
    done: crossbeam_channel::Sender<Completion>,
    completions: crossbeam_channel::Receiver<Completion>,
}

impl<'a> Run<'a> {
    fn new(
        device: &'a dyn ComputeDevice,
        function: FunctionId,
        request: Bytes,
        room: usize,
    ) -> Result<Self, MeasurementError> {
        let many = (2 * slots(device)).clamp(MANY, MANY_MAX);
        let (done, completions) = bounded(2 * many);
        let free = (0..many).map(|_| device.register(room, room)).collect::<Result<_, _>>()?;
        Ok(Self { device, function, request, free, done, completions })
    }

    fn submit(&mut self) -> Result<(), MeasurementError> {
        let failed = |reason: String| MeasurementError::Failed { device: self.device.info().name.clone(), reason };
        let region = self.free.pop().ok_or_else(|| failed("no memory is left".into()))?;
        let (function, input, done) = (self.function, self.request.clone(), self.done.clone());
        self.device.submit(Job { tag: 0, function, input, region, done }).map_err(|error| failed(error.to_string()))
    }

    fn complete(&mut self) -> Result<(), MeasurementError> {
        let failed = |reason: String| MeasurementError::Failed { device: self.device.info().name.clone(), reason };
        let completion =
            self.completions.recv_timeout(SILENCE_TIMEOUT).map_err(|_| failed("it does not answer".into()))?;
        completion.result.map_err(|error| failed(error.to_string()))?;
        self.free.extend(completion.region);
        Ok(())
    }

    /// Times of sequential jobs, for this long and at least this many.
    fn times(&mut self, budget: Duration, least: usize) -> Result<Vec<u64>, MeasurementError> {
        let (began, mut times) = (Clock::now(), Vec::new());
        while times.len() < least || began.elapsed() < budget {
            let sent = Clock::now();
            self.submit()?;
            self.complete()?;
            times.push(sent.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    /// Time between two answers with many jobs in flight.
    fn busy(&mut self, budget: Duration) -> Result<u64, MeasurementError> {
        let many = self.free.len() as u64;
        let began = Clock::now();
        let (mut sent, mut done) = (0_u64, 0_u64);
        // The first answers, one for each slot, arrive together.
        let least = slots(self.device) as u64;
        while done < least || began.elapsed() < budget {
            while sent - done < many {
                self.submit()?;
                sent += 1;
            }
            self.complete()?;
            done += 1;
        }
        let nanos = began.elapsed().as_nanos() as u64 / done;
        for _ in done..sent {
            self.complete()?;
        }
        Ok(nanos.max(1))
    }
}

/// Measured model of this machine; its display form is a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredMachine {
    /// Name of the model.
    pub name: String,
    /// Number of CPU threads.
    pub threads: usize,
    /// Link between processor and network card.
    pub nic: TransferProfile,
    /// Accelerators, in the order of their roles.
    pub accelerators: Vec<MeasuredAccelerator>,
}

/// Accelerator of a measured machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredAccelerator {
    /// Name of the device.
    pub name: String,
    /// Number of jobs that it executes in parallel.
    pub slots: usize,
    /// Link to the processor.
    pub link: TransferProfile,
}

/// Measures this machine with these accelerators, one after the other; at most
/// [`ACCELERATORS_MAX`](crate::model::ACCELERATORS_MAX) fit a model.
///
/// # Errors
/// As [`compute`] and [`network`].
pub fn measure<'a>(
    accelerators: impl IntoIterator<Item = &'a dyn ComputeDevice>,
    budget: Duration,
) -> Result<MeasuredMachine, MeasurementError> {
    let measured = |device: &dyn ComputeDevice| {
        let (name, slots) = (device.info().name.clone(), slots(device));
        Ok(MeasuredAccelerator { name, slots, link: link(device, budget)? })
    };
    let accelerators = accelerators.into_iter().map(measured).collect::<Result<_, MeasurementError>>()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(MeasuredMachine { name: "this-machine".into(), threads, nic: network(budget)?, accelerators })
}

impl fmt::Display for MeasuredMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accelerators = || DeviceRole::ALL[1..].iter().zip(&self.accelerators);
        let link = |f: &mut fmt::Formatter<'_>, to: &str, link: &TransferProfile| {
            let TransferProfile { bytes_per_second, messages_per_second, latency_ns } = link;
            let (mega, kilo) = (*bytes_per_second as f64 / 1e6, *messages_per_second as f64 / 1e3);
            writeln!(
                f,
                "  - {{ between: [cpu, {to}], bandwidth: {mega:.6} MB/s, messages: {kilo:.3} k/s, latency: {latency_ns} ns }}"
            )
        };
        writeln!(
            f,
            "# Measured by `pathcall place profile`: the processor's link to the card with messages to itself over"
        )?;
        writeln!(f, "# UDP, that to an accelerator with a kernel that does nothing.")?;
        writeln!(f, "hardware: {}\nnodes:\n  cpu: {{ role: cpu, slots: {} }}", self.name, self.threads)?;
        for (node, MeasuredAccelerator { name, slots, .. }) in accelerators() {
            writeln!(f, "  # {}\n  {node}: {{ role: acc, slots: {slots} }}", name.replace('\n', " "))?;
        }
        writeln!(f, "  nic: {{ role: nic }}\nlinks:")?;
        link(f, "nic", &self.nic)?;
        accelerators().try_for_each(|(node, acc)| link(f, node.name(), &acc.link))
    }
}

#[cfg(test)]
mod tests;
