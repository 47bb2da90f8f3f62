//! Buffers for one receive call: message bytes and their metadata.

use std::cell::Cell;

use quinn_udp::RecvMeta;

use super::{RECV_MESSAGE_BYTES, RECV_MESSAGES};

/// Messages of one receive call.
pub(super) struct ReceivedMessages {
    pub(super) bytes: Box<[u8]>,
    /// Metadata of the messages; only the entries that the last call filled are valid.
    pub(super) meta: Box<[RecvMeta]>,
}

thread_local! {
    /// Buffer kept between batches and shared by all links of the thread: a buffer per link would have left the
    /// processor's caches before its next use.
    static RECEIVED: Cell<Option<ReceivedMessages>> = const { Cell::new(None) };
}

/// The thread's receive buffer, returned to the thread when dropped.
pub(super) struct ReceiveBuffer(Option<ReceivedMessages>);

impl ReceiveBuffer {
    pub(super) fn of_this_thread() -> Self {
        Self(RECEIVED.take())
    }

    pub(super) fn get(&mut self) -> &mut ReceivedMessages {
        self.0.get_or_insert_with(|| ReceivedMessages {
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
