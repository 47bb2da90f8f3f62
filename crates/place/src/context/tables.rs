//! Tables on a device, which can be changed while requests are executed.

use std::sync::Arc;

use super::PlaceContext;
use crate::DeviceRole;
use crate::device::{ComputeDevice, DeviceError, DeviceKind, FunctionId};

/// Tables of a loaded function: [`Kernel::tables`](crate::device::Kernel::tables). Other threads may use them, also
/// after the context has ended.
#[derive(Debug, Clone)]
pub struct DeviceTables {
    device: Arc<dyn ComputeDevice>,
    function: FunctionId,
}

impl DeviceTables {
    /// Kind of the device. Functions of the host have no tables.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.device.info().kind
    }

    /// Changes a table for jobs that are submitted from now on; waits for those already submitted.
    ///
    /// # Errors
    /// As [`ComputeDevice::update`].
    pub fn write(&self, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.update(self.function, table, at, bytes)
    }
}

impl PlaceContext {
    /// Tables of a task's function on a role; `None` if no function is registered.
    #[must_use]
    pub fn tables(&self, task: &str, role: DeviceRole) -> Option<DeviceTables> {
        let at = self.application.tasks.iter().position(|known| known.name == task)?;
        let function = self.tasks[at][role as usize]?.function;
        let device = Arc::clone(&self.queues[role as usize].as_ref()?.device);
        Some(DeviceTables { device, function })
    }
}
