//! What devices and links of this machine can do, as it is measured (LEO §III-A: metrics are measured at the start).
//!
//! ```text
//! one job at a time: time through an idle device, and how far it varies
//! all slots full:    jobs a second
//! long ones:         bytes a second
//! ```

use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::bounded;

use super::{Code, Completion, Device, DeviceError, FunctionId, Items, Job, Kernel, Kind, Length, Region};
use crate::context::comm::{Arrival, Comm, Head, Inbox, Start};
use crate::context::remote::Remote;
use crate::model::Role;

/// Time that is spent on each number, unless it is said otherwise.
pub const BUDGET: Duration = Duration::from_millis(200);
/// Jobs in flight where many are, or twice a device's slots if those are more, up to a bound.
const MANY: usize = 16;
const MANY_MAX: usize = 1024;
/// Bytes of a short message and of a long one.
const SHORT: usize = 64;
const LONG: usize = 1 << 20;
/// A device, or the network, that says nothing for so long is given up: longer than a machine stands still.
const SILENT: Duration = Duration::from_secs(60);

/// Why nothing was measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The device does not do what it is asked for.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A job failed.
    #[error("{device}: {reason}")]
    Failed {
        /// Where.
        device: String,
        /// Why.
        reason: String,
    },
}

/// What a link can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkProfile {
    /// Bytes a second, of messages of 1 MiB.
    pub bytes_per_second: u64,
    /// Messages a second, of 64 bytes.
    pub messages_per_second: u64,
    /// Time of a message of 64 bytes, one way, nanoseconds: half of the way there and back.
    pub latency_ns: u64,
}

/// What a function needs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeProfile {
    /// Time through the idle device: the median, nanoseconds.
    pub latency_ns: u64,
    /// How far nine of ten times lie above the median at most, nanoseconds.
    pub noise_ns: u64,
    /// Time between two answers when all of its slots are full, nanoseconds.
    pub busy_ns: u64,
    /// Time that each takes of a slot, nanoseconds: no more than through the idle device, from which time on wires is
    /// told apart by the rate.
    pub job_ns: u64,
}

/// Measures a function with such a request.
///
/// # Errors
/// [`ProfileError`]: the device fails it, or says nothing.
pub fn compute(
    device: &dyn Device,
    function: FunctionId,
    request: &Bytes,
    answer_max: usize,
    budget: Duration,
) -> Result<ComputeProfile, ProfileError> {
    let mut run = Run::new(device, function, request.clone(), answer_max.max(request.len()))?;
    // What is compiled, cached or woken at the first time is not what is measured.
    run.times(Duration::ZERO, 3)?;
    let mut times = run.times(budget / 2, 5)?;
    times.sort_unstable();
    let latency_ns = times[times.len() / 2];
    let noise_ns = times[times.len() * 9 / 10] - latency_ns;
    let busy_ns = run.busy(budget / 2)?;
    let job_ns = busy_ns.saturating_mul(slots(device) as u64).min(latency_ns.max(1));
    Ok(ComputeProfile { latency_ns, noise_ns, busy_ns, job_ns })
}

/// Measures how requests get to a device and answers back, by a function that does nothing.
///
/// # Errors
/// As [`compute`].
pub fn link(device: &dyn Device, budget: Duration) -> Result<LinkProfile, ProfileError> {
    let function = device.load("nothing", &nothing(device.info().kind))?;
    let short = compute(device, function, &Bytes::from(vec![1; SHORT]), SHORT, budget)?;
    let long = compute(device, function, &Bytes::from(vec![1; LONG]), SHORT, budget)?;
    // Where nothing is copied, whoever looks at the bytes does no better than memory.
    Ok(LinkProfile::of_rounds(short.latency_ns, short.busy_ns, long.busy_ns, copy_ns(budget / 4)))
}

/// Measures what this host's network carries to itself: the communication function of [`Remote`], over the loopback.
///
/// # Errors
/// [`ProfileError::Failed`].
pub fn network(budget: Duration) -> Result<LinkProfile, ProfileError> {
    let failed = |reason: String| ProfileError::Failed { device: "nic".into(), reason };
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let bind = |to| Remote::bind(free, to).map_err(|error| failed(error.to_string()));
    let mut there = bind(None)?;
    let mut here = bind(Some(there.address()))?.timeout(SILENT);
    let origin = Clock::now();
    let clock = std::sync::Arc::new(move || pathcall_wire::Instant(origin.elapsed().as_nanos() as u64));
    let ((to_there, far), (to_here, near)) = (Inbox::new(), Inbox::new());
    for (comm, inbox) in [(&mut there, to_there), (&mut here, to_here)] {
        let start = Start { inbox, windows: Default::default(), clock: clock.clone() };
        comm.start(start).map_err(failed)?;
    }
    // Who echoes ends with its inbox, when both ends are dropped.
    let echo = std::thread::spawn(move || {
        for arrival in &far.requests {
            if let Arrival::Request { payload, reply, .. } = arrival {
                reply.answer(Default::default(), payload.slice(..payload.len().min(SHORT)));
            }
        }
    });
    let head = Head { kind: 0, trip: 0, task: None, role: Role::Cpu };
    let mut round = |bytes: usize, in_flight: usize, budget: Duration| -> Result<u64, ProfileError> {
        let payload = Bytes::from(vec![1; bytes]);
        let (began, mut sent, mut came) = (Clock::now(), 0, 0);
        while came == 0 || began.elapsed() < budget {
            while sent - came < in_flight as u64 {
                here.post(sent, head, &payload).map_err(|error| failed(error.to_string()))?;
                sent += 1;
            }
            match near.answers.recv_timeout(SILENT) {
                Ok(Arrival::Answer { result: Ok(_), .. }) => came += 1,
                other => return Err(failed(format!("no answer: {other:?}"))),
            }
        }
        let nanos = began.elapsed().as_nanos() as u64 / came;
        while came < sent {
            near.answers.recv_timeout(SILENT).map_err(|error| failed(error.to_string()))?;
            came += 1;
        }
        Ok(nanos)
    };
    round(SHORT, 1, budget / 10)?;
    let (alone, short, long) = (round(SHORT, 1, budget)?, round(SHORT, MANY, budget)?, round(LONG, 2, budget)?);
    drop((here, there));
    let _ = echo.join();
    Ok(LinkProfile::of_rounds(alone, short, long, copy_ns(budget / 4)))
}

impl LinkProfile {
    /// From times between two answers: one message at a time, many short ones, long ones; and of a copy of a long one. A
    /// machine that stands still meanwhile makes any of them as long as it likes.
    fn of_rounds(alone_ns: u64, short_ns: u64, long_ns: u64, copy_ns: u64) -> Self {
        // Nobody carries bytes sooner than they are copied.
        let bytes_ns = long_ns.saturating_sub(short_ns).max(copy_ns);
        Self {
            bytes_per_second: per_second(LONG as u64, bytes_ns),
            messages_per_second: per_second(1, short_ns),
            latency_ns: alone_ns / 2,
        }
    }
}

/// Time that it takes to copy a long message in memory, nanoseconds.
fn copy_ns(budget: Duration) -> u64 {
    let (from, mut to) = (vec![1_u8; LONG], vec![0_u8; LONG]);
    let (began, mut copies) = (Clock::now(), 0);
    while copies == 0 || began.elapsed() < budget {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        copies += 1;
    }
    (began.elapsed().as_nanos() as u64 / copies).max(1)
}

/// At least one: a rate of zero is none.
fn per_second(count: u64, nanos: u64) -> u64 {
    ((u128::from(count) * 1_000_000_000 / u128::from(nanos.max(1))) as u64).max(1)
}

/// A function that does nothing, as each kind of device runs it.
fn nothing(kind: Kind) -> Code {
    let kernel = |source: &str| Kernel {
        source: source.into(),
        entry: "nothing".into(),
        options: String::new(),
        items: Items::Exactly(1),
        group: 1,
        length: Length::Exactly(1),
        tables: Vec::new(),
    };
    match kind {
        Kind::Cpu | Kind::Emulated => Code::host(|_, _| Ok(0)),
        Kind::OpenCl => Code::OpenCl(kernel(
            "kernel void nothing(global const uchar *input, uint n, global uchar *output, uint max) { output[0] = 0; }",
        )),
        Kind::Cuda => Code::Cuda(kernel(
            "extern \"C\" __global__ void nothing(const unsigned char *input, unsigned n, unsigned char *output, \
             unsigned max) { output[0] = 0; }",
        )),
    }
}

/// Jobs that it works on at the same time: one in whose order jobs end works on one after the other.
fn slots(device: &dyn Device) -> usize {
    let info = device.info();
    if info.in_order { 1 } else { info.slots.max(1) }
}

/// Jobs of one function, with memory that is used again.
struct Run<'a> {
    device: &'a dyn Device,
    function: FunctionId,
    request: Bytes,
    free: Vec<Region>,
    done: crossbeam_channel::Sender<Completion>,
    completions: crossbeam_channel::Receiver<Completion>,
}

impl<'a> Run<'a> {
    fn new(device: &'a dyn Device, function: FunctionId, request: Bytes, room: usize) -> Result<Self, ProfileError> {
        let many = (2 * slots(device)).clamp(MANY, MANY_MAX);
        let (done, completions) = bounded(2 * many);
        let free = (0..many).map(|_| device.register(room, room)).collect::<Result<_, _>>()?;
        Ok(Self { device, function, request, free, done, completions })
    }

    fn submit(&mut self) -> Result<(), ProfileError> {
        let failed = |reason: String| ProfileError::Failed { device: self.device.info().name.clone(), reason };
        let region = self.free.pop().ok_or_else(|| failed("no memory is left".into()))?;
        let (function, input, done) = (self.function, self.request.clone(), self.done.clone());
        self.device.submit(Job { tag: 0, function, input, region, done }).map_err(|error| failed(error.to_string()))
    }

    fn complete(&mut self) -> Result<(), ProfileError> {
        let failed = |reason: String| ProfileError::Failed { device: self.device.info().name.clone(), reason };
        let completion = self.completions.recv_timeout(SILENT).map_err(|_| failed("it does not answer".into()))?;
        completion.result.map_err(|error| failed(error.to_string()))?;
        self.free.extend(completion.region);
        Ok(())
    }

    /// Times of jobs, one after the other, for so long and so many at least.
    fn times(&mut self, budget: Duration, least: usize) -> Result<Vec<u64>, ProfileError> {
        let (began, mut times) = (Clock::now(), Vec::new());
        while times.len() < least || began.elapsed() < budget {
            let sent = Clock::now();
            self.submit()?;
            self.complete()?;
            times.push(sent.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    /// Time between two answers when many are in flight.
    fn busy(&mut self, budget: Duration) -> Result<u64, ProfileError> {
        let many = self.free.len() as u64;
        let began = Clock::now();
        let (mut sent, mut done) = (0_u64, 0_u64);
        // The first answers, as many as there are slots, come together.
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

/// A model of this machine as it was measured; shown, it is the model's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Threads of the CPU.
    pub threads: usize,
    /// Processor and card.
    pub nic: LinkProfile,
    /// Processor and accelerator, with its name and what it does at the same time; none: there is none.
    pub acc: Option<(String, usize, LinkProfile)>,
}

/// Measures this machine with this accelerator, or none.
///
/// # Errors
/// As [`compute`] and [`network`].
pub fn measure(acc: Option<&dyn Device>, budget: Duration) -> Result<Measured, ProfileError> {
    let acc = match acc {
        Some(device) => {
            let info = device.info();
            Some((info.name.clone(), slots(device), link(device, budget)?))
        }
        None => None,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Measured { name: "this-machine".into(), threads, nic: network(budget)?, acc })
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = |f: &mut fmt::Formatter<'_>, to: &str, link: &LinkProfile| {
            let LinkProfile { bytes_per_second, messages_per_second, latency_ns } = link;
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
        writeln!(f, "# UDP, that to the accelerator with a kernel that does nothing.")?;
        writeln!(f, "hardware: {}\nnodes:\n  cpu: {{ role: cpu, slots: {} }}", self.name, self.threads)?;
        if let Some((name, slots, _)) = &self.acc {
            writeln!(f, "  # {}\n  acc: {{ role: acc, slots: {slots} }}", name.replace('\n', " "))?;
        }
        writeln!(f, "  nic: {{ role: nic }}\nlinks:")?;
        link(f, "nic", &self.nic)?;
        self.acc.iter().try_for_each(|(.., acc)| link(f, "acc", acc))
    }
}

#[cfg(test)]
mod tests;
