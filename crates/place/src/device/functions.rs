//! Loaded functions of a device, which jobs read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{DeviceError, DeviceInfo, FUNCTIONS_MAX, FunctionId};

/// At most [`FUNCTIONS_MAX`] functions; functions are never removed.
#[derive(Debug)]
pub(super) struct FunctionTable<T> {
    places: Box<[OnceLock<T>]>,
    next: AtomicUsize,
}

impl<T> FunctionTable<T> {
    pub(super) fn new() -> Self {
        Self { places: (0..FUNCTIONS_MAX).map(|_| OnceLock::new()).collect(), next: AtomicUsize::new(0) }
    }

    /// Adds a function.
    pub(super) fn add(&self, info: &DeviceInfo, function: T) -> Result<FunctionId, DeviceError> {
        let place = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < FUNCTIONS_MAX).then_some(next + 1));
        let Ok(place) = place else { return Err(DeviceError::Functions { device: info.name.clone() }) };
        // Each index is used once.
        let _ = self.places[place].set(function);
        Ok(FunctionId(place))
    }

    pub(super) fn get(&self, id: FunctionId) -> Option<&T> {
        self.places.get(id.0)?.get()
    }
}
