//! Accelerators of this machine, and kernels in one text for all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{AnswerLength, ComputeDevice, DeviceKind, Kernel, TaskCode, WorkItemCount};

/// Names of OpenCL C in CUDA C++. Errors have the lines of the text after it.
const CUDA_NAMES: &str = "#define get_global_id(dimension) (blockIdx.x * blockDim.x + threadIdx.x)\n\
                          typedef unsigned char uchar;\n\
                          typedef unsigned int uint;\n\
                          #line 1\n";

/// One test at a time uses accelerators: with CUDA, a process that frees memory waits for its kernels.
static TURN: Mutex<()> = Mutex::new(());

/// Accelerators, for one test at a time.
pub struct Accelerators {
    present: std::vec::IntoIter<Arc<dyn ComputeDevice>>,
    _turn: MutexGuard<'static, ()>,
}

impl Iterator for Accelerators {
    type Item = Arc<dyn ComputeDevice>;

    fn next(&mut self) -> Option<Self::Item> {
        self.present.next()
    }
}

/// The first accelerator of each library. Prints which one is absent. Tests as root require OpenCL.
pub fn accelerators() -> Accelerators {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let present = |choice: DeviceChoice| match open(&choice) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = choice.kind() == DeviceKind::OpenCl && std::env::var_os("PATHCALL_ROOT_TESTS").is_some();
            assert!(!required, "{error}");
            println!("skipped on {choice}: {error}");
            None
        }
    };
    let present: Vec<_> = [DeviceChoice::Cuda(0), DeviceChoice::OpenCl(0)].into_iter().filter_map(present).collect();
    Accelerators { present: present.into_iter(), _turn: turn }
}

/// Kernel in OpenCL C, one work item for each byte of the request.
pub fn kernel(source: &str, entry: &str, length: AnswerLength) -> Kernel {
    Kernel {
        source: source.into(),
        entry: entry.into(),
        options: String::new(),
        items: WorkItemCount::PerInput(1),
        group: 64,
        length,
        tables: Vec::new(),
    }
}

/// Code of a kernel in OpenCL C for a device.
pub fn code(kernel: Kernel, device: &dyn ComputeDevice) -> TaskCode {
    match device.info().kind {
        DeviceKind::Cuda => {
            // CUDA's own macros use the word `global`, so it cannot be a macro.
            let text = kernel.source.replace("global ", "").replace("kernel ", "extern \"C\" __global__ ");
            TaskCode::Cuda(Kernel { source: format!("{CUDA_NAMES}{text}"), ..kernel })
        }
        _ => TaskCode::OpenCl(kernel),
    }
}
