//! Slot of a running handler. A handler that waits until its caller takes replies leaves its slot to others.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Handlers that wait without a slot, for each slot; further handlers keep theirs while they wait.
const WAITING_PER_SLOT: usize = 64;

/// Slots of a node's handlers. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct HandlerSlots {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// Slot of one handler.
#[derive(Debug)]
pub(super) struct HandlerSlot {
    slots: HandlerSlots,
    /// `None` while the handler waits.
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl HandlerSlots {
    /// Slots for this number of running handlers.
    pub(super) fn new(running: usize) -> Self {
        let waiting = running.saturating_mul(WAITING_PER_SLOT).min(Semaphore::MAX_PERMITS);
        Self { running: Arc::new(Semaphore::new(running)), waiting: Arc::new(Semaphore::new(waiting)) }
    }

    /// Takes a slot as soon as one is free.
    pub(super) async fn take(&self) -> HandlerSlot {
        HandlerSlot { slots: self.clone(), held: Mutex::new(self.free().await) }
    }

    /// Never `None`: the slots are not closed.
    async fn free(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).acquire_owned().await.ok()
    }
}

impl HandlerSlot {
    /// Leaves the slot: the handler has ended.
    pub(super) fn release(&self) {
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits for a future without the slot, unless the future is ready.
    pub(super) async fn wait_without<T>(&self, waits: impl Future<Output = T>) -> T {
        let mut waits = pin!(waits);
        let at_once = std::future::poll_fn(|cx| match waits.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = at_once.await {
            return done;
        }
        let Ok(_waiting) = self.slots.waiting.try_acquire() else { return waits.await };
        self.release();
        let done = waits.await;
        let slot = self.slots.free().await;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = slot;
        done
    }
}
