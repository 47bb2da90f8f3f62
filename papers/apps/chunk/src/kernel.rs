//! The same packing as kernels, in OpenCL C and in CUDA C++: one text, with what the two call things before it.
//!
//! `pack` packs a plain chunk as [`words`](crate::words) does, bit for bit. `unpack` takes chunks of every form. Of what is
//! no chunk they don't say how long their answer is, which a device's driver takes for a failure; whoever asked has the
//! processor do it, which says what is wrong.

/// What both languages share.
const TEXT: &str = include_str!("chunk.cl");

/// Work items of a group.
pub const GROUP: usize = 64;
/// Work items that pack: one group, since where a block begins depends on those before it.
pub const PACK_ITEMS: usize = GROUP;
/// Work items that unpack.
pub const UNPACK_ITEMS: usize = 8 * GROUP;
/// Name of the entry that packs.
pub const PACK: &str = "pack";
/// Name of the entry that unpacks.
pub const UNPACK: &str = "unpack";

/// In OpenCL C.
#[must_use]
pub fn opencl() -> String {
    let names = "#define KERNEL kernel\n#define GLOBAL global\n#define SHARED local\n#define FUNCTION\n\
                 #define ITEM ((uint)get_local_id(0))\n#define GROUP_ID ((uint)get_group_id(0))\n\
                 #define GROUPS ((uint)get_num_groups(0))\n\
                 #define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n";
    format!("{names}#define GROUP {GROUP}\n{TEXT}")
}

/// In CUDA C++.
#[must_use]
pub fn cuda() -> String {
    let names = "#define KERNEL extern \"C\" __global__\n#define GLOBAL\n#define SHARED __shared__\n\
                 #define FUNCTION __device__\n#define ITEM threadIdx.x\n#define GROUP_ID blockIdx.x\n\
                 #define GROUPS gridDim.x\n#define SYNC __syncthreads()\n\
                 typedef unsigned char uchar;\ntypedef unsigned int uint;\n";
    format!("{names}#define GROUP {GROUP}\n{TEXT}")
}
