//! Tasks of processors and accelerators on chunks.

use apps_chunk::{Codec, kernel, pack, unpack};
use pathcall_place::device::{AnswerLength, AppError, Kernel, TaskCode, WorkItemCount};

use crate::answer_cache::AnswerCache;

/// Task for packing on the processor.
#[must_use]
pub fn compress(codec: Codec) -> TaskCode {
    TaskCode::host(move |chunk, to| pack(codec, chunk, to).map_err(|error| AppError(error.to_string())))
}

/// Task for unpacking on the processor, for every form.
#[must_use]
pub fn decompress() -> TaskCode {
    TaskCode::host(|chunk, to| unpack(chunk, to).map_err(|error| AppError(error.to_string())))
}

/// Task for packing on accelerators. Emulated accelerators return cached answers of the processor, so that their time
/// is mostly the emulated wait.
#[must_use]
pub fn compress_on_accelerators(codec: Codec, cached: usize) -> Vec<TaskCode> {
    let memory = AnswerCache::new(cached);
    let host = TaskCode::host(move |chunk, to| memory.get_or_compute(chunk, to, |chunk, to| pack(codec, chunk, to)));
    accelerators(host, kernel::PACK, kernel::PACK_ITEMS)
}

/// Task for unpacking on accelerators.
#[must_use]
pub fn decompress_on_accelerators(cached: usize) -> Vec<TaskCode> {
    let memory = AnswerCache::new(cached);
    let host = TaskCode::host(move |chunk, to| memory.get_or_compute(chunk, to, unpack));
    accelerators(host, kernel::UNPACK, kernel::UNPACK_ITEMS)
}

fn accelerators(host: TaskCode, entry: &str, items: usize) -> Vec<TaskCode> {
    let kernel = |source| Kernel {
        source,
        entry: entry.into(),
        options: String::new(),
        items: WorkItemCount::Exactly(items),
        group: kernel::GROUP,
        length: AnswerLength::Any,
        tables: Vec::new(),
    };
    vec![host, TaskCode::OpenCl(kernel(kernel::opencl())), TaskCode::Cuda(kernel(kernel::cuda()))]
}
