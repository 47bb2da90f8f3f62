// Kernel for look-ups in the index tree, one key per work item, in OpenCL C and CUDA C++.
#ifdef __CUDACC__
typedef unsigned char uchar;
typedef unsigned int uint;
typedef unsigned long long word;
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)
#else
typedef ulong word;
#define KERNEL kernel void
#define GLOBAL global
#define ITEM get_global_id(0)
#endif

#define LEAF 0x80000000u
#define NONE 0xffffffffffffffffu

// Node: the bit that distinguishes its keys, the child for 0, the child for 1, and padding. The first child of node 0 is
// the root.
KERNEL look_up(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_bytes_max,
               GLOBAL uint *output_bytes, GLOBAL uchar *table0, GLOBAL uchar *table1) {
  GLOBAL const word *asked = (GLOBAL const word *)input;
  GLOBAL word *found = (GLOBAL word *)output;
  GLOBAL const uint *nodes = (GLOBAL const uint *)table0;
  GLOBAL const word *keys = (GLOBAL const word *)table1;
  uint item = ITEM;
  if (item == 0) *output_bytes = input_bytes / 8 * 16;
  if (item >= input_bytes / 8 || (item + 1) * 16 > output_bytes_max) return;
  word key = asked[item];
  uint at = nodes[1];
  while (at < LEAF) {
    GLOBAL const uint *node = nodes + at * 4;
    at = node[1 + (uint)((key >> node[0]) & 1)];
  }
  uint slot = at & ~LEAF;
  found[item * 2] = key;
  found[item * 2 + 1] = key != NONE && keys[slot] == key ? slot : NONE;
}
