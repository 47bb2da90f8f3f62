//! Reflector thread with turns: two polling threads would share a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

use crate::round_trip::{ELEMENT_CPU, Pinned};

/// Thread that returns frames during its turns; ends when the value is dropped.
pub(super) struct Reflector {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Control of the thread.
#[derive(Default)]
pub(super) struct Gate {
    turn: AtomicBool,
    stop: AtomicBool,
}

impl Gate {
    /// Waits for a turn; false if the thread is to stop.
    pub(super) fn opens(&self) -> bool {
        while !self.turn.load(Ordering::Relaxed) {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::park();
        }
        true
    }
}

/// Turn of the reflector, which ends on drop.
pub(super) struct ReflectorTurn<'a>(&'a Gate);

impl Reflector {
    /// Starts the thread on the element's processor; `work` runs while the gate opens.
    pub(super) fn start(work: impl FnOnce(&Gate) -> Result<()> + Send + 'static) -> Self {
        let gate = Arc::new(Gate::default());
        let opened = Arc::clone(&gate);
        let thread = std::thread::spawn(move || {
            let _pinned = Pinned::to(ELEMENT_CPU)?;
            work(&opened)
        });
        Self { gate, thread: Some(thread) }
    }

    pub(super) fn turn(&self) -> ReflectorTurn<'_> {
        self.gate.turn.store(true, Ordering::Relaxed);
        self.thread.as_ref().inspect(|thread| thread.thread().unpark());
        ReflectorTurn(&self.gate)
    }
}

impl Drop for ReflectorTurn<'_> {
    fn drop(&mut self) {
        self.0.turn.store(false, Ordering::Relaxed);
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.gate.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if let Ok(Err(error)) = thread.join() {
            eprintln!("a reflector ended: {error}");
        }
    }
}
