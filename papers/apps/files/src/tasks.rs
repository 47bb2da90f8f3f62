//! What processors and accelerators do with chunks.

use apps_chunk::{Codec, kernel, pack, unpack};
use pathcall_place::device::{AppError, Code, Items, Kernel, Length};

use crate::remembered::Remembered;

/// Packs on the processor.
#[must_use]
pub fn compress(codec: Codec) -> Code {
    Code::host(move |chunk, to| pack(codec, chunk, to).map_err(|error| AppError(error.to_string())))
}

/// Unpacks on the processor, whatever it is packed with.
#[must_use]
pub fn decompress() -> Code {
    Code::host(|chunk, to| unpack(chunk, to).map_err(|error| AppError(error.to_string())))
}

/// Packs on accelerators. Emulated ones give the processor's answers, which they remember, so that their waiting is most
/// of what they take.
#[must_use]
pub fn compress_on_accelerators(codec: Codec, remembered: usize) -> Vec<Code> {
    let memory = Remembered::new(remembered);
    let host = Code::host(move |chunk, to| memory.or(chunk, to, |chunk, to| pack(codec, chunk, to)));
    accelerators(host, kernel::PACK, kernel::PACK_ITEMS)
}

/// Unpacks on accelerators.
#[must_use]
pub fn decompress_on_accelerators(remembered: usize) -> Vec<Code> {
    let memory = Remembered::new(remembered);
    let host = Code::host(move |chunk, to| memory.or(chunk, to, unpack));
    accelerators(host, kernel::UNPACK, kernel::UNPACK_ITEMS)
}

fn accelerators(host: Code, entry: &str, items: usize) -> Vec<Code> {
    let kernel = |source| Kernel {
        source,
        entry: entry.into(),
        options: String::new(),
        items: Items::Exactly(items),
        group: kernel::GROUP,
        length: Length::Any,
        tables: Vec::new(),
    };
    vec![host, Code::OpenCl(kernel(kernel::opencl())), Code::Cuda(kernel(kernel::cuda()))]
}
