//! Pool of registered memory of one device. Memory is reused when its job has ended and its answer is dropped.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::device::{ComputeDevice, DeviceError, Region};

/// Maximum length of an answer that is copied, so that its memory is free at once.
const COPIED_MAX: usize = 4096;
/// Sizes are powers of two from 2^6 on.
const CLASS_MIN: u32 = 6;
const CLASSES: usize = 24;

/// Free memory, by size.
#[derive(Debug)]
pub(super) struct BufferPool {
    free: [Vec<Region>; CLASSES],
    /// Number of regions that are registered and not known to be lost.
    registered: usize,
    max: usize,
    back: Sender<Region>,
    returned: Receiver<Region>,
}

impl BufferPool {
    /// Creates a pool with at most `max` regions.
    pub(super) fn new(max: usize) -> Self {
        let (back, returned) = unbounded();
        Self { free: [const { Vec::new() }; CLASSES], registered: 0, max: max.max(1), back, returned }
    }

    /// Takes memory for `bytes` in each direction; `None` if too much is in use.
    pub(super) fn take(&mut self, device: &dyn ComputeDevice, bytes: usize) -> Result<Option<Region>, DeviceError> {
        while let Ok(region) = self.returned.try_recv() {
            self.put(region);
        }
        let class = size_class(bytes);
        let free = self.free.get_mut(class).and_then(Vec::pop);
        if free.is_some() {
            return Ok(free);
        }
        if self.registered >= self.max {
            // Frees unused memory of another size.
            let other = self.free.iter_mut().find_map(Vec::pop);
            if other.is_none() {
                return Ok(None);
            }
            self.registered -= 1;
        }
        let size = bytes.max(1 << (class as u32 + CLASS_MIN));
        let region = device.register(size, size)?;
        self.registered += 1;
        Ok(Some(region))
    }

    /// Returns memory to the pool.
    pub(super) fn put(&mut self, region: Region) {
        match self.free.get_mut(size_class(region.input_max)) {
            Some(free) => free.push(region),
            None => self.registered -= 1,
        }
    }

    /// Records that a device has lost memory; another region may be registered.
    pub(super) fn record_loss(&mut self) {
        self.registered = self.registered.saturating_sub(1);
    }

    /// Takes the answer of `bytes` bytes out of its memory.
    pub(super) fn answer(&mut self, region: Region, bytes: usize) -> Bytes {
        if bytes <= COPIED_MAX {
            let answer = Bytes::copy_from_slice(region.output(bytes));
            self.put(region);
            return answer;
        }
        Bytes::from_owner(PooledAnswer { region: Some(region), bytes, back: self.back.clone() })
    }
}

/// Index of the smallest sufficient size.
fn size_class(bytes: usize) -> usize {
    (bytes.max(1).next_power_of_two().trailing_zeros().saturating_sub(CLASS_MIN)) as usize
}

/// Answer whose memory returns to the pool on drop.
struct PooledAnswer {
    region: Option<Region>,
    bytes: usize,
    back: Sender<Region>,
}

impl AsRef<[u8]> for PooledAnswer {
    fn as_ref(&self) -> &[u8] {
        self.region.as_ref().map_or(&[], |region| region.output(self.bytes))
    }
}

impl Drop for PooledAnswer {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            let _ = self.back.send(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::pool::{CpuPool, PoolConfig};

    #[test]
    fn buffer_pool_reuses_memory_and_is_bounded() {
        let device = CpuPool::start(&PoolConfig::new(1)).expect("threads");
        let mut buffers = BufferPool::new(2);
        let (a, b) = (buffers.take(&device, 100).expect("memory"), buffers.take(&device, 10_000).expect("memory"));
        let (a, b) = (a.expect("room"), b.expect("room"));
        assert_eq!((a.input_max, b.output_max), (128, 16_384));
        assert!(buffers.take(&device, 1).expect("memory").is_none(), "third path");
        let small = buffers.answer(a, 3);
        let large = buffers.answer(b, 10_000);
        // The small answer's memory is free, and its region is replaced by one of another size.
        let c = buffers.take(&device, 1 << 20).expect("memory").expect("room");
        assert_eq!((c.input_max, small.len(), large.len()), (1 << 20, 3, 10_000));
        assert!(buffers.take(&device, 10_000).expect("memory").is_none(), "poll succeeds");
        drop(large);
        assert!(buffers.take(&device, 10_000).expect("memory").is_some(), "used again");
        buffers.record_loss();
        assert!(buffers.take(&device, 10_000).expect("memory").is_some(), "region replaces the lost one");
    }
}
