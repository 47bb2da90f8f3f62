//! Tables that stay on a device, for whoever changes them while requests are worked on.

use std::sync::Arc;

use super::Context;
use crate::Role;
use crate::device::{Device, DeviceError, FunctionId, Kind};

/// The tables of a function where it is loaded: [`Kernel::tables`](crate::device::Kernel::tables). May be used by other
/// threads than the context's, and after it.
#[derive(Debug, Clone)]
pub struct Tables {
    device: Arc<dyn Device>,
    function: FunctionId,
}

impl Tables {
    /// The kind of device that has them; functions of the host have none.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.device.info().kind
    }

    /// Changes one, for requests that the device is given from now on. Waits for those that it has.
    ///
    /// # Errors
    /// As [`Device::update`].
    pub fn write(&self, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.update(self.function, table, at, bytes)
    }
}

impl Context {
    /// The tables of a task's function on a role; none where nothing is registered for it.
    #[must_use]
    pub fn tables(&self, task: &str, role: Role) -> Option<Tables> {
        let at = self.application.tasks.iter().position(|known| known.name == task)?;
        let function = self.tasks[at][role as usize]?.function;
        let device = Arc::clone(&self.benches[role as usize].as_ref()?.device);
        Some(Tables { device, function })
    }
}
