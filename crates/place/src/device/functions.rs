//! The functions that a device has loaded: read without a lock, by each job.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{DeviceError, FUNCTIONS_MAX, FunctionId, Info};

/// At most [`FUNCTIONS_MAX`] functions; none is ever taken away.
#[derive(Debug)]
pub(super) struct Functions<T> {
    places: Box<[OnceLock<T>]>,
    next: AtomicUsize,
}

impl<T> Functions<T> {
    pub(super) fn new() -> Self {
        Self { places: (0..FUNCTIONS_MAX).map(|_| OnceLock::new()).collect(), next: AtomicUsize::new(0) }
    }

    /// Adds one.
    pub(super) fn add(&self, info: &Info, function: T) -> Result<FunctionId, DeviceError> {
        let place = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < FUNCTIONS_MAX).then_some(next + 1));
        let Ok(place) = place else { return Err(DeviceError::Functions { device: info.name.clone() }) };
        // Each place is given out once.
        let _ = self.places[place].set(function);
        Ok(FunctionId(place))
    }

    pub(super) fn get(&self, id: FunctionId) -> Option<&T> {
        self.places.get(id.0)?.get()
    }
}
