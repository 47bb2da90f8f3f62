//! Room for what one receive call gives: frames, and what the system says of them.

use std::cell::Cell;

use quinn_udp::RecvMeta;

use super::{RECV_MESSAGE_BYTES, RECV_MESSAGES};

/// Where received messages are put.
pub(super) struct Received {
    pub(super) bytes: Box<[u8]>,
    /// What the system said of them; only what it has just filled in counts.
    pub(super) meta: Box<[RecvMeta]>,
}

thread_local! {
    /// Kept between batches, for whichever link of the thread receives next: one that each link had to
    /// itself would be out of the caches by the time it is used again.
    static RECEIVED: Cell<Option<Received>> = const { Cell::new(None) };
}

/// The thread's room for received messages, given back when this is dropped.
pub(super) struct ReceiveBuffer(Option<Received>);

impl ReceiveBuffer {
    pub(super) fn of_this_thread() -> Self {
        Self(RECEIVED.take())
    }

    pub(super) fn get(&mut self) -> &mut Received {
        self.0.get_or_insert_with(|| Received {
            bytes: vec![0; RECV_MESSAGES * RECV_MESSAGE_BYTES].into(),
            meta: vec![RecvMeta::default(); RECV_MESSAGES].into(),
        })
    }
}

impl Drop for ReceiveBuffer {
    fn drop(&mut self) {
        RECEIVED.set(self.0.take());
    }
}
