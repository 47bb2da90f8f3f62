//! Kernels for packing and unpacking, in OpenCL C and CUDA C++: one source text, with a prefix for each language.
//!
//! `pack` packs a plain chunk as [`words`](crate::words) does, bit for bit. `unpack` accepts chunks of every form. For
//! an invalid chunk, the kernels write no output length, which the device's driver reports as a failure. The caller
//! then uses the processor, which reports the error.

/// Source text of both languages.
const TEXT: &str = include_str!("chunk.cl");

/// Work items of a group.
pub const GROUP: usize = 64;
/// Work items for packing: one group, because the offset of a block depends on the blocks before it.
pub const PACK_ITEMS: usize = GROUP;
/// Work items for unpacking.
pub const UNPACK_ITEMS: usize = 8 * GROUP;
/// Name of the packing kernel.
pub const PACK: &str = "pack";
/// Name of the unpacking kernel.
pub const UNPACK: &str = "unpack";

/// Source in OpenCL C.
#[must_use]
pub fn opencl() -> String {
    let names = "#define KERNEL kernel\n#define GLOBAL global\n#define SHARED local\n#define FUNCTION\n\
                 #define ITEM ((uint)get_local_id(0))\n#define GROUP_ID ((uint)get_group_id(0))\n\
                 #define GROUPS ((uint)get_num_groups(0))\n\
                 #define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n";
    format!("{names}#define GROUP {GROUP}\n{TEXT}")
}

/// Source in CUDA C++.
#[must_use]
pub fn cuda() -> String {
    let names = "#define KERNEL extern \"C\" __global__\n#define GLOBAL\n#define SHARED __shared__\n\
                 #define FUNCTION __device__\n#define ITEM threadIdx.x\n#define GROUP_ID blockIdx.x\n\
                 #define GROUPS gridDim.x\n#define SYNC __syncthreads()\n\
                 typedef unsigned char uchar;\ntypedef unsigned int uint;\n";
    format!("{names}#define GROUP {GROUP}\n{TEXT}")
}
