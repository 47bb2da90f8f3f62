//! Rows of values become one, in the order of rows: on the processor, by a kernel, or by a device that is asked and waited
//! for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use pathcall_place::device::{AppError, Code, Completion, Device, FunctionId, Items, Job, Kernel, Length, Region};

/// How long a device may take for a part.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes before the rows: how many there are.
const HEAD: usize = 4;

/// Adds up rows of float32, little-endian: their number, then they.
///
/// # Errors
/// What came is no rows, or there is no room.
pub fn rows(input: &[u8], output: &mut [u8]) -> Result<usize, AppError> {
    let wrong = || AppError(format!("{} bytes are no rows of values that there is room for", input.len()));
    let (count, values) = input.split_first_chunk::<HEAD>().ok_or_else(wrong)?;
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

/// Reads as many values as there are places.
pub fn read(bytes: &[u8], to: &mut [f32]) {
    for (value, bytes) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// The processor's.
#[must_use]
pub fn on_processor() -> Code {
    Code::host(rows)
}

/// Those of accelerators.
#[must_use]
pub fn on_accelerators() -> [Code; 2] {
    let kernel = Kernel {
        source: include_str!("add.cl").into(),
        entry: "add".into(),
        options: String::new(),
        // Of two rows or more each value has eight bytes at least.
        items: Items::PerInput(8),
        group: 64,
        length: Length::Any,
        tables: Vec::new(),
    };
    [on_processor(), Code::OpenCl(kernel)]
}

/// A device that adds up one part after the other.
#[derive(Debug)]
pub struct Adder {
    device: Arc<dyn Device>,
    function: FunctionId,
    region: Option<Region>,
    done: Sender<Completion>,
    completions: Receiver<Completion>,
    /// Parts that it has added up.
    pub parts: u64,
}

impl Adder {
    /// With room for so many rows of so many values.
    ///
    /// # Errors
    /// The device does not run what it should, or has no memory.
    pub fn new(device: Arc<dyn Device>, rows: usize, values: usize) -> Result<Self> {
        let codes = on_accelerators();
        let code = codes.iter().find(|code| code.runs_on(device.info().kind));
        let code = code.with_context(|| format!("{} can't add up: give opencl or emulated", device.info().name))?;
        let function = device.load("add", code)?;
        let region = Some(device.register(HEAD + 4 * rows * values, 4 * values)?);
        let (done, completions) = bounded(1);
        Ok(Self { device, function, region, done, completions, parts: 0 })
    }

    /// Adds up rows as [`rows`] takes them: the sum goes to `to`.
    ///
    /// # Errors
    /// The device fails, or does not answer; it is not to be asked again then.
    pub fn add(&mut self, input: Bytes, to: &mut [f32]) -> Result<()> {
        let region = self.region.take().context("the device has failed before")?;
        let job = Job { tag: 0, function: self.function, input, region, done: self.done.clone() };
        self.device.submit(job).map_err(|refused| anyhow!("{}", refused.reason))?;
        let Completion { region, result, .. } = self.completions.recv_timeout(PATIENCE)?;
        let (bytes, region) = (result?, region.context("the device's memory is lost")?);
        if bytes != 4 * to.len() {
            bail!("the device answers {bytes} bytes for {} values", to.len());
        }
        read(region.output(bytes), to);
        self.region = Some(region);
        self.parts += 1;
        Ok(())
    }
}
