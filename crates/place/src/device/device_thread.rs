//! Thread of an accelerator, which makes the library's calls for jobs and copies.
//!
//! ```text
//! submit, write, read ─▶ DeviceOrder ─▶ upload ─▶ launch ─▶ download ─▶ notify ══▶ Flight::land ─▶ Completion
//! ```
//!
//! The calls of a job take 15 us with CUDA. They would delay the thread of a context, which works for other devices,
//! too. Orders are executed in the sequence in which they came. The stages of several jobs overlap; a library has one
//! queue for each stage. Memory of jobs is freed while no job is in the device, because CUDA waits for kernels then. A
//! device without a thread executes orders in the thread that has them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};

use super::accelerator::{Accelerator, CopyDirection, DeviceTable, LENGTH_UNSET, Launch, LoadedKernel, TablePart};
use super::job::Registered;
use super::{AnswerLength, Completion, JobError, Region};

/// Time between two looks at long jobs.
const PAUSE: Duration = Duration::from_micros(50);
/// Limit on the regions that wait for the end of all jobs; then they are freed at once.
const FREED_MAX: usize = 1 << 10;

/// Order for the thread of a device.
enum DeviceOrder<A: Accelerator> {
    Job { kernel: Arc<LoadedKernel<A>>, input: Bytes, flight: Box<Flight<A>> },
    Copy(CopyOrder<A>),
    Free(A::Memory),
}

struct CopyOrder<A: Accelerator> {
    table: Arc<DeviceTable<A>>,
    at: usize,
    len: usize,
    direction: CopyDirection,
    staging: A::Staging,
    begun: Sender<Result<A::Staging, A::Error>>,
}

/// Handle of the thread. The thread ends when all handles, windows and regions are dropped.
pub(super) struct DeviceHandle<A: Accelerator> {
    pub(super) raw: Arc<A>,
    /// Limited by the device's jobs, by the threads that wait for a copy, and by the registered regions. `None`: there is
    /// no thread.
    orders: Option<Sender<DeviceOrder<A>>>,
}

impl<A: Accelerator> Clone for DeviceHandle<A> {
    fn clone(&self) -> Self {
        Self { raw: Arc::clone(&self.raw), orders: self.orders.clone() }
    }
}

impl<A: Accelerator> DeviceHandle<A> {
    /// Starts the thread, if the device has one.
    pub(super) fn start(raw: A) -> io::Result<Self> {
        let (raw, (orders, received)) = (Arc::new(raw), unbounded());
        if !raw.has_thread() {
            return Ok(Self { raw, orders: None });
        }
        let of = Arc::clone(&raw);
        let (flying, freed) = (VecDeque::new(), Vec::new());
        thread::Builder::new().name(format!("place-{}", A::KIND)).spawn(move || {
            DeviceThread { raw: of, orders: received, flying, freed, active: Clock::now() }.run();
        })?;
        Ok(Self { raw, orders: Some(orders) })
    }

    /// Whether both are the same device.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.raw, &other.raw)
    }

    /// Begins a job; false if the thread has ended.
    pub(super) fn begin(&self, kernel: Arc<LoadedKernel<A>>, input: Bytes, flight: Box<Flight<A>>) -> bool {
        let Some(orders) = &self.orders else {
            // Without a thread, a callback of the library completes it.
            begin(&*self.raw, &kernel, &input, flight);
            return true;
        };
        orders.send(DeviceOrder::Job { kernel, input, flight }).is_ok()
    }

    /// Writes to a table, after the jobs and copies that came before, and waits. The table has room.
    pub(super) fn write(&self, table: &Arc<DeviceTable<A>>, at: usize, bytes: &[u8]) -> Result<(), String> {
        let fill = |staging: &mut [u8]| staging.copy_from_slice(bytes);
        self.copy(table, at, bytes.len(), CopyDirection::ToDevice, fill, |_| ())
    }

    /// Reads a table, as [`Self::write`] writes to it.
    pub(super) fn read(&self, table: &Arc<DeviceTable<A>>, at: usize, to: &mut [u8]) -> Result<(), String> {
        self.copy(table, at, to.len(), CopyDirection::FromDevice, |_| (), |bytes| to.copy_from_slice(bytes))
    }

    fn copy(
        &self,
        table: &Arc<DeviceTable<A>>,
        at: usize,
        len: usize,
        direction: CopyDirection,
        fill: impl FnOnce(&mut [u8]),
        take: impl FnOnce(&[u8]),
    ) -> Result<(), String> {
        if len == 0 {
            return Ok(());
        }
        let failed = |error: A::Error| error.to_string();
        let mut staging = self.raw.staging(len).map_err(failed)?;
        fill(&mut staging.as_mut()[..len]);
        let (begun, begins) = bounded(1);
        let order = CopyOrder { table: Arc::clone(table), at, len, direction, staging, begun };
        let ended = || "the thread of the device has ended".to_owned();
        match &self.orders {
            Some(orders) => orders.send(DeviceOrder::Copy(order)).map_err(|_| ended())?,
            None => order.execute(&*self.raw),
        }
        let copied = begins.recv().map_err(|_| ended())?.map_err(failed)?;
        let copied = self.raw.wait_for_copy(copied).map_err(failed)?;
        take(&copied.as_ref()[..len]);
        self.raw.keep(copied);
        Ok(())
    }
}

/// Memory of a job, which the thread of its device frees.
pub(super) struct JobMemory<A: Accelerator> {
    /// Present until it is dropped.
    raw: Option<A::Memory>,
    of: DeviceHandle<A>,
}

impl<A: Accelerator> JobMemory<A> {
    pub(super) fn new(raw: A::Memory, of: DeviceHandle<A>) -> Self {
        Self { raw: Some(raw), of }
    }

    /// Whether it is memory of this device.
    pub(super) fn is_of(&self, device: &DeviceHandle<A>) -> bool {
        self.of.is_same(device)
    }

    fn get(&self) -> &A::Memory {
        self.raw.as_ref().expect("not dropped")
    }
}

impl<A: Accelerator> Drop for JobMemory<A> {
    fn drop(&mut self) {
        if let Some((memory, orders)) = self.raw.take().zip(self.of.orders.as_ref()) {
            // If the thread has ended, the memory is freed here.
            let _ = orders.send(DeviceOrder::Free(memory));
        }
    }
}

impl<A: Accelerator> fmt::Debug for JobMemory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<A: Accelerator> Registered for JobMemory<A> {
    fn output(&self) -> &[u8] {
        self.get().output()
    }
}

struct DeviceThread<A: Accelerator> {
    raw: Arc<A>,
    orders: Receiver<DeviceOrder<A>>,
    /// Jobs whose end is polled, in the order of their ends.
    flying: VecDeque<Box<Flight<A>>>,
    /// Memory to free.
    freed: Vec<A::Memory>,
    /// Time of the last order, or of the last end of a job.
    active: Clock,
}

impl<A: Accelerator> DeviceThread<A> {
    fn run(mut self) {
        loop {
            match self.next() {
                Ok(Some(order)) => self.execute(order),
                Ok(None) => {}
                Err(()) if self.flying.is_empty() => return,
                Err(()) => thread::sleep(PAUSE),
            }
            self.land_ended();
        }
    }

    /// Next order; `None` if there is none at present, and an error if there will be none.
    fn next(&mut self) -> Result<Option<DeviceOrder<A>>, ()> {
        if self.active.elapsed() < A::POLL {
            return match self.orders.try_recv() {
                Ok(order) => Ok(Some(order)),
                Err(TryRecvError::Disconnected) => Err(()),
                Err(TryRecvError::Empty) => {
                    std::hint::spin_loop();
                    Ok(None)
                }
            };
        }
        if self.flying.is_empty() {
            self.freed.clear();
            return self.orders.recv().map(Some).map_err(drop);
        }
        match self.orders.recv_timeout(PAUSE) {
            Ok(order) => Ok(Some(order)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    fn execute(&mut self, order: DeviceOrder<A>) {
        match order {
            DeviceOrder::Job { kernel, input, flight } => {
                self.flying.extend(begin(&*self.raw, &kernel, &input, flight));
                self.active = Clock::now();
            }
            DeviceOrder::Copy(order) => order.execute(&*self.raw),
            DeviceOrder::Free(memory) => {
                self.freed.push(memory);
                if self.freed.len() >= FREED_MAX {
                    self.freed.clear();
                }
            }
        }
    }

    /// Completes the polled jobs that have ended.
    fn land_ended(&mut self) {
        while let Some(first) = self.flying.front() {
            let failure = match self.raw.has_ended(first.memory()) {
                Ok(false) => return,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            self.flying.pop_front().expect("it is there").land(failure);
            self.active = Clock::now();
        }
    }
}

impl<A: Accelerator> CopyOrder<A> {
    fn execute(self, raw: &A) {
        let Self { table, at, len, direction, mut staging, begun } = self;
        let copied = raw.copy(TablePart { table: &table.raw, at, len }, direction, &mut staging);
        let _ = begun.send(copied.map(|()| staging));
    }
}

/// Begins a job, or fails it; returns it if its end must be polled.
fn begin<A: Accelerator>(
    raw: &A,
    kernel: &LoadedKernel<A>,
    input: &[u8],
    mut flight: Box<Flight<A>>,
) -> Option<Box<Flight<A>>> {
    let begun = match enqueue(raw, kernel, input, &mut flight) {
        Ok(last) => raw.notify(last, flight),
        Err(error) => Err((error, flight)),
    };
    let (error, flight) = match begun {
        Ok(polled) => return polled,
        Err(failed) => failed,
    };
    // The device may still use the memory. If the end is unknown, the memory is lost.
    if raw.finish().is_err() {
        flight.lose(&error);
    } else {
        flight.land(Some(error));
    }
    None
}

/// Enqueues the commands of a job.
fn enqueue<A: Accelerator>(
    raw: &A,
    kernel: &LoadedKernel<A>,
    input: &[u8],
    flight: &mut Flight<A>,
) -> Result<A::Event, A::Error> {
    let launch = Launch {
        input,
        answer: kernel.length.known(input.len()).unwrap_or(flight.output_max),
        items: kernel.items.count(input.len(), kernel.group),
        group: kernel.group,
        reports_length: kernel.length == AnswerLength::Any,
    };
    let memory = flight.memory.raw.as_mut().expect("not dropped");
    let up = raw.upload(memory, &launch)?;
    let worked = raw.launch(kernel, memory, &launch, up)?;
    raw.download(memory, &launch, worked)
}

/// Job in the device.
pub(super) struct Flight<A: Accelerator> {
    pub(super) memory: Box<JobMemory<A>>,
    pub(super) tag: u64,
    /// Length of the request in bytes.
    pub(super) input: usize,
    pub(super) input_max: usize,
    pub(super) output_max: usize,
    pub(super) length: AnswerLength,
    pub(super) done: Sender<Completion>,
    /// Number of jobs in the device.
    pub(super) jobs: Arc<AtomicUsize>,
}

impl<A: Accelerator> Flight<A> {
    /// Memory of the job.
    pub(super) fn memory(&self) -> &A::Memory {
        self.memory.get()
    }

    /// Completes the job, with the error of its last command.
    pub(super) fn land(self, failure: Option<A::Error>) {
        let Self { memory, tag, input, input_max, output_max, length, done, jobs } = self;
        jobs.fetch_sub(1, Ordering::AcqRel);
        let result = match (failure, length.known(input)) {
            (Some(error), _) => Err(JobError::Device(error.to_string())),
            (None, Some(bytes)) => Ok(bytes),
            (None, None) => match A::length(memory.get()) {
                LENGTH_UNSET => Err(JobError::Device("the kernel did not say how long its answer is".into())),
                bytes => Ok(bytes as usize),
            },
        };
        let result = result.and_then(|bytes| {
            if bytes > output_max { Err(JobError::length(length, input, output_max, bytes)) } else { Ok(bytes) }
        });
        let region = Region::registered(memory, input_max, output_max);
        Completion::now(tag, Some(region), result).send(&done);
    }

    /// Fails the job, whose memory the device may use for ever.
    fn lose(self, error: &A::Error) {
        self.jobs.fetch_sub(1, Ordering::AcqRel);
        std::mem::forget(self.memory);
        Completion::now(self.tag, None, Err(JobError::Device(error.to_string()))).send(&self.done);
    }
}

#[cfg(test)]
mod tests;
