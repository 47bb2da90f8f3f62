//! Addition of rows of values, in the order of rows: on the processor, in a kernel, or on a device with a blocking
//! call.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use pathcall_place::device::{
    AnswerLength, AppError, Completion, ComputeDevice, FunctionId, Job, Kernel, Region, TaskCode, WorkItemCount,
};

/// Timeout of a device for one part.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the row count before the rows.
const HEADER_LEN: usize = 4;

/// Adds up rows of float32, little-endian. The input is the number of rows, then the rows.
///
/// # Errors
/// Returns an error if the input has no rows, or if the output is too short.
pub fn rows(input: &[u8], output: &mut [u8]) -> Result<usize, AppError> {
    let wrong = || AppError(format!("invalid rows: {} bytes of input, or output too short", input.len()));
    let (count, values) = input.split_first_chunk::<HEADER_LEN>().ok_or_else(wrong)?;
    let count = u32::from_le_bytes(*count) as usize;
    let bytes =
        values.len().checked_div(count).filter(|bytes| bytes * count == values.len() && bytes.is_multiple_of(4));
    let bytes = bytes.ok_or_else(wrong)?;
    let output = output.get_mut(..bytes).ok_or_else(wrong)?;
    let (first, others) = values.split_at(bytes);
    output.copy_from_slice(first);
    for row in others.chunks_exact(bytes.max(1)) {
        for (sum, value) in output.as_chunks_mut::<4>().0.iter_mut().zip(row.as_chunks::<4>().0) {
            *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*value)).to_le_bytes();
        }
    }
    Ok(bytes)
}

/// Appends values.
pub fn append(values: &[f32], to: &mut Vec<u8>) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads `to.len()` values.
pub fn read(bytes: &[u8], to: &mut [f32]) {
    for (value, bytes) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Code for the processor.
#[must_use]
pub fn on_processor() -> TaskCode {
    TaskCode::host(rows)
}

/// Code for accelerators.
#[must_use]
pub fn on_accelerators() -> [TaskCode; 3] {
    let kernel = Kernel {
        source: include_str!("add.cl").into(),
        entry: "add".into(),
        options: String::new(),
        // With two or more rows, each value has at least eight input bytes.
        items: WorkItemCount::PerInput(8),
        group: 64,
        length: AnswerLength::Any,
        tables: Vec::new(),
    };
    [on_processor(), TaskCode::OpenCl(kernel.clone()), TaskCode::Cuda(kernel)]
}

/// Device that adds up one part after the other.
#[derive(Debug)]
pub struct Adder {
    device: Arc<dyn ComputeDevice>,
    function: FunctionId,
    region: Option<Region>,
    done: Sender<Completion>,
    completions: Receiver<Completion>,
    /// Parts added up by the device.
    pub parts: u64,
}

impl Adder {
    /// Allocates memory for this number of rows and values.
    ///
    /// # Errors
    /// Returns an error if the device does not support the function, or lacks memory.
    pub fn new(device: Arc<dyn ComputeDevice>, rows: usize, values: usize) -> Result<Self> {
        let codes = on_accelerators();
        let code = codes.iter().find(|code| code.runs_on(device.info().kind));
        let code = code.with_context(|| {
            format!("device {} cannot add up values: use opencl, cuda or emulated", device.info().name)
        })?;
        let function = device.load("add", code)?;
        let region = Some(device.register(HEADER_LEN + 4 * rows * values, 4 * values)?);
        let (done, completions) = bounded(1);
        Ok(Self { device, function, region, done, completions, parts: 0 })
    }

    /// Adds up rows in the format of [`rows`] and writes the sum to `to`.
    ///
    /// # Errors
    /// Returns an error if the device fails or does not answer. Do not use the adder after that.
    pub fn add(&mut self, input: Bytes, to: &mut [f32]) -> Result<()> {
        let region = self.region.take().context("the device failed in an earlier call")?;
        let job = Job { tag: 0, function: self.function, input, region, done: self.done.clone() };
        self.device.submit(job).map_err(|refused| anyhow!("{}", refused.reason))?;
        let Completion { region, result, .. } = self.completions.recv_timeout(DEVICE_TIMEOUT)?;
        let (bytes, region) = (result?, region.context("the device's memory is lost")?);
        if bytes != 4 * to.len() {
            bail!("the device returned {bytes} bytes for {} values", to.len());
        }
        read(region.output(bytes), to);
        self.region = Some(region);
        self.parts += 1;
        Ok(())
    }
}
