//! Registered memory of one device: used again when a job, or the last to look at its answer, is done with it.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::device::{Device, DeviceError, Region};

/// Answers up to so many bytes are copied, and their memory is free at once.
const COPIED_MAX: usize = 4096;
/// Sizes are powers of two from 2^6 on.
const CLASS_MIN: u32 = 6;
const CLASSES: usize = 24;

/// Memory, by size.
#[derive(Debug)]
pub(super) struct Rooms {
    free: [Vec<Region>; CLASSES],
    /// Registered and not known to be lost.
    registered: usize,
    max: usize,
    back: Sender<Region>,
    returned: Receiver<Region>,
}

impl Rooms {
    /// At most so many regions at a time.
    pub(super) fn new(max: usize) -> Self {
        let (back, returned) = unbounded();
        Self { free: [const { Vec::new() }; CLASSES], registered: 0, max: max.max(1), back, returned }
    }

    /// Memory for so many bytes each way; none when there is too much in use.
    pub(super) fn take(&mut self, device: &dyn Device, bytes: usize) -> Result<Option<Region>, DeviceError> {
        while let Ok(region) = self.returned.try_recv() {
            self.put(region);
        }
        let class = class(bytes);
        let free = self.free.get_mut(class).and_then(Vec::pop);
        if free.is_some() {
            return Ok(free);
        }
        if self.registered >= self.max {
            // Memory of other sizes that nobody uses gives way.
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

    /// Takes back what is not used any more.
    pub(super) fn put(&mut self, region: Region) {
        match self.free.get_mut(class(region.input_max)) {
            Some(free) => free.push(region),
            None => self.registered -= 1,
        }
    }

    /// A device has lost memory: more may be registered in its place.
    pub(super) fn lost(&mut self) {
        self.registered = self.registered.saturating_sub(1);
    }

    /// An answer of `bytes` bytes, out of the memory that it is in.
    pub(super) fn answer(&mut self, region: Region, bytes: usize) -> Bytes {
        if bytes <= COPIED_MAX {
            let answer = Bytes::copy_from_slice(region.output(bytes));
            self.put(region);
            return answer;
        }
        Bytes::from_owner(Lease { region: Some(region), bytes, back: self.back.clone() })
    }
}

/// The smallest size that has room.
fn class(bytes: usize) -> usize {
    (bytes.max(1).next_power_of_two().trailing_zeros().saturating_sub(CLASS_MIN)) as usize
}

/// An answer whose memory goes back when nobody looks at it any more.
struct Lease {
    region: Option<Region>,
    bytes: usize,
    back: Sender<Region>,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.region.as_ref().map_or(&[], |region| region.output(self.bytes))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            let _ = self.back.send(region);
        }
    }
}

/// A device and its memory.
pub(super) type Shared = Arc<dyn Device>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::pool::{Pool, PoolConfig};

    #[test]
    fn memory_is_used_again_and_bounded() {
        let device = Pool::start(&PoolConfig::new(1)).expect("threads");
        let mut rooms = Rooms::new(2);
        let (a, b) = (rooms.take(&device, 100).expect("memory"), rooms.take(&device, 10_000).expect("memory"));
        let (a, b) = (a.expect("room"), b.expect("room"));
        assert_eq!((a.input_max, b.output_max), (128, 16_384));
        assert!(rooms.take(&device, 1).expect("memory").is_none(), "a third");
        let small = rooms.answer(a, 3);
        let large = rooms.answer(b, 10_000);
        // The small answer's memory is free; of another size it gives way.
        let c = rooms.take(&device, 1 << 20).expect("memory").expect("room");
        assert_eq!((c.input_max, small.len(), large.len()), (1 << 20, 3, 10_000));
        assert!(rooms.take(&device, 10_000).expect("memory").is_none(), "looked at");
        drop(large);
        assert!(rooms.take(&device, 10_000).expect("memory").is_some(), "used again");
        rooms.lost();
        assert!(rooms.take(&device, 10_000).expect("memory").is_some(), "in place of what was lost");
    }
}
