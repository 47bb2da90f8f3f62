//! Raw operations of a library for accelerators, which `driver` and `device_thread` use.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::device_thread::Flight;
use super::job::Registered;
use super::{AnswerLength, DeviceKind, Kernel, WorkItemCount};

/// Value of the answer length as long as the kernel has not written it.
pub(super) const LENGTH_UNSET: u32 = u32::MAX;

/// Raw operations of a library. None of them blocks, except where it says so. If the device has a thread, it calls those
/// of jobs and [`copy`](Self::copy).
pub(super) trait Accelerator: Send + Sync + Sized + 'static {
    /// Kind of the devices.
    const KIND: DeviceKind;
    /// How long the thread of the device polls orders and jobs after the last one, before it sleeps.
    const POLL: Duration;
    /// Id of a device.
    type Id;
    /// Error of the library.
    type Error: fmt::Display + fmt::Debug + Send;
    /// Compiled kernel.
    type Kernel: Send;
    /// Table on the device.
    type Table: Send + Sync;
    /// Memory of one job: request, answer and answer length.
    type Memory: Registered;
    /// Memory of the host that a copy of a table passes through.
    type Staging: AsRef<[u8]> + AsMut<[u8]> + Send;
    /// Last command of a stage.
    type Event;

    /// Lists the devices; an error is the reason why there are none, and the remedy.
    fn list() -> Result<Vec<ListedDevice<Self::Id>>, String>;
    /// Opens a device.
    fn open(id: Self::Id) -> Result<Self, Self::Error>;
    /// Whether a thread of the device calls the library for jobs; otherwise the submitting threads do.
    fn has_thread(&self) -> bool;
    /// Compiles a kernel, which may take seconds. The inner error is the compiler's output.
    fn compile(&self, kernel: &Kernel) -> Result<Result<Self::Kernel, String>, Self::Error>;
    /// Allocates a table with this content.
    fn table(&self, bytes: &[u8]) -> Result<Self::Table, Self::Error>;
    /// Allocates a table of zeros.
    fn zeros(&self, bytes: usize) -> Result<Self::Table, Self::Error>;
    /// Memory for a copy of at least so many bytes.
    fn staging(&self, bytes: usize) -> Result<Self::Staging, Self::Error>;
    /// Begins to copy this part of a table from or to the first bytes of the memory, in the queue of the kernels. There
    /// is at least one byte.
    fn copy(
        &self,
        part: TablePart<'_, Self>,
        direction: CopyDirection,
        at: &mut Self::Staging,
    ) -> Result<(), Self::Error>;
    /// Waits until a copy has ended. If that is not known, the memory is leaked.
    fn wait_for_copy(&self, copied: Self::Staging) -> Result<Self::Staging, Self::Error>;
    /// Keeps memory for the next copies.
    fn keep(&self, _staging: Self::Staging) {}
    /// Allocates memory for one job.
    fn memory(&self, input_max: usize, output_max: usize) -> Result<Self::Memory, Self::Error>;
    /// Copies a request to the device, and [`LENGTH_UNSET`] as the answer length, if the kernel writes one.
    fn upload(&self, memory: &mut Self::Memory, launch: &Launch<'_>) -> Result<Self::Event, Self::Error>;
    /// Starts a kernel after an upload.
    fn launch(
        &self,
        kernel: &LoadedKernel<Self>,
        memory: &mut Self::Memory,
        launch: &Launch<'_>,
        after: Self::Event,
    ) -> Result<Self::Event, Self::Error>;
    /// Copies the answer and its length back after a kernel.
    fn download(
        &self,
        memory: &mut Self::Memory,
        launch: &Launch<'_>,
        after: Self::Event,
    ) -> Result<Self::Event, Self::Error>;
    /// Has a thread of the library call [`Flight::land`] after the last command; or returns the job, whose end
    /// [`has_ended`](Self::has_ended) tells.
    fn notify(&self, last: Self::Event, flight: Box<Flight<Self>>) -> NotifyResult<Self>;
    /// Whether the last command of a job has ended.
    fn has_ended(&self, _memory: &Self::Memory) -> Result<bool, Self::Error> {
        Ok(true)
    }
    /// Waits until the device has no commands.
    fn finish(&self) -> Result<(), Self::Error>;
    /// Answer length of a job that has ended.
    fn length(memory: &Self::Memory) -> u32;
}

/// Result of [`Accelerator::notify`].
pub(super) type NotifyResult<A> = Result<Option<Box<Flight<A>>>, (<A as Accelerator>::Error, Box<Flight<A>>)>;

/// Device as a library lists it.
pub(super) struct ListedDevice<I> {
    pub(super) id: I,
    /// Name that the library reports.
    pub(super) name: String,
    /// Description for people, after the name.
    pub(super) about: String,
}

/// Table on a device, with its length in bytes.
pub(super) struct DeviceTable<A: Accelerator> {
    pub(super) raw: A::Table,
    pub(super) len: usize,
}

/// Part of a table.
pub(super) struct TablePart<'a, A: Accelerator> {
    pub(super) table: &'a A::Table,
    pub(super) at: usize,
    pub(super) len: usize,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyDirection {
    ToDevice,
    FromDevice,
}

/// Loaded function.
pub(super) struct LoadedKernel<A: Accelerator> {
    /// Locked while the arguments of a job are set.
    pub(super) kernel: Mutex<A::Kernel>,
    pub(super) tables: Vec<Arc<DeviceTable<A>>>,
    pub(super) items: WorkItemCount,
    pub(super) group: usize,
    pub(super) length: AnswerLength,
}

/// Run of a kernel.
pub(super) struct Launch<'a> {
    pub(super) input: &'a [u8],
    /// Number of bytes to copy back.
    pub(super) answer: usize,
    /// Number of work items, in whole groups.
    pub(super) items: usize,
    pub(super) group: usize,
    /// Whether the kernel writes the length of its answers.
    pub(super) reports_length: bool,
}
