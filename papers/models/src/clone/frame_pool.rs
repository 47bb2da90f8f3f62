//! Frames in flight of the model, by number.

use pathcall_endpoint::clone::CloneDestination;
use pathcall_wire::MAX_FRAME;

/// Frames in flight, by number.
#[derive(Default)]
pub(super) struct FramePool {
    frames: Vec<(u8, [u8; FRAME])>,
    free: Vec<u32>,
    /// Buffer for frames written by `transmit`.
    out: Vec<u8>,
}

/// Maximum frame length in the model: headers and a small payload.
const FRAME: usize = 100;

impl FramePool {
    pub(super) fn get(&self, frame: u32) -> &[u8] {
        let (len, bytes) = &self.frames[frame as usize];
        &bytes[..usize::from(*len)]
    }

    pub(super) fn get_mut(&mut self, frame: u32) -> &mut [u8] {
        let (len, bytes) = &mut self.frames[frame as usize];
        &mut bytes[..usize::from(*len)]
    }

    pub(super) fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }

    /// Stores the frame that `transmit` writes.
    pub(super) fn take(
        &mut self,
        transmit: impl FnOnce(&mut [u8]) -> Option<(CloneDestination, usize)>,
    ) -> Option<(CloneDestination, u32)> {
        self.out.resize(MAX_FRAME, 0);
        let (to, len) = transmit(&mut self.out)?;
        let frame = self.place();
        self.frames[frame as usize].0 = len as u8;
        self.frames[frame as usize].1[..len].copy_from_slice(&self.out[..len]);
        Some((to, frame))
    }

    pub(super) fn copy(&mut self, frame: u32) -> u32 {
        let copy = self.place();
        self.frames[copy as usize] = self.frames[frame as usize];
        copy
    }

    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.frames.push((0, [0; FRAME]));
            self.frames.len() as u32 - 1
        })
    }
}
