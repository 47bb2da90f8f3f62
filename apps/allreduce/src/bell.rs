//! Wakes a leader when a part was added up: its context waits for messages, and answers by itself what comes.
//!
//! The leader asks to read nothing; that is answered when the bell is rung.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pathcall_place::context::comm::{Arrival, Comm, Head, Inbox, PostError, Start};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::window::Access;
use pathcall_wire::Instant;
use pathcall_wire::place::HostTime;

/// Who is to be woken.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    inbox: Option<Inbox>,
    read: Option<u64>,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers who has asked.
    pub(crate) fn ring(&self) {
        let mut waiting = self.lock();
        if let (Some(id), Some(inbox)) = (waiting.read.take(), &waiting.inbox) {
            inbox.answer(Arrival::Answer { id, at: Instant(0), result: Ok((HostTime::default(), Bytes::new())) });
        }
    }
}

/// Messages go between hosts; a read waits for the bell.
#[derive(Debug)]
pub(crate) struct Belled {
    pub(crate) remote: Remote,
    pub(crate) bell: Arc<Bell>,
}

impl Comm for Belled {
    fn is_ordered(&self) -> bool {
        self.remote.is_ordered()
    }

    fn start(&mut self, start: Start) -> Result<(), String> {
        self.bell.lock().inbox = Some(start.inbox.clone());
        self.remote.start(start)
    }

    fn post(&mut self, id: u64, head: Head, payload: &Bytes) -> Result<(), PostError> {
        self.remote.post(id, head, payload)
    }

    fn access(&mut self, id: u64, _: &Access) -> Result<(), PostError> {
        self.bell.lock().read = Some(id);
        Ok(())
    }
}
