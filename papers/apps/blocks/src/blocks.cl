// Kernels for quality of service and for look-ups of block addresses, in OpenCL C and CUDA C++.
#ifdef __CUDACC__
typedef unsigned char uchar;
typedef unsigned int uint;
typedef ulonglong2 wide;
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)
#define NOTHING make_ulonglong2(0, 0)
#else
typedef ulong8 wide;
#define KERNEL kernel void
#define GLOBAL global
#define ITEM get_global_id(0)
#define NOTHING ((wide)(0))
#endif

// Words per read, volume, layer and extent.
#define READ 16
#define VOLUME 4
#define LAYER 2
#define EXTENT 3
#define BLOCK 4096u
// Maximum number of blocks per read.
#define BLOCKS 16

// One read per work item: class of the volume, and admission.
KERNEL qos(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_bytes_max,
           GLOBAL uchar *table0) {
  uint item = ITEM;
  if (item >= input_bytes / 64 || (item + 1) * 64 > output_bytes_max) return;
  GLOBAL const uint *from = (GLOBAL const uint *)input + item * READ;
  GLOBAL uint *to = (GLOBAL uint *)output + item * READ;
  GLOBAL const uint *volumes = (GLOBAL const uint *)table0;
  for (int i = 0; i < READ; i++) to[i] = from[i];
  uint volume = from[0], blocks = from[1], lba = from[2], size = 0, service = 0;
  if (volume < volumes[0]) {
    size = volumes[(1 + volume) * VOLUME + 2];
    service = volumes[(1 + volume) * VOLUME + 3];
  }
  to[3] = service;
  to[4] = service != 0 && blocks >= 1 && blocks <= BLOCKS && lba < size && blocks <= size - lba;
}

// One of sixteen blocks of a read per work item: the newest layer with the block has its address.
KERNEL block_address(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_bytes_max,
                     GLOBAL uint *output_bytes, GLOBAL uchar *table0, GLOBAL uchar *table1, GLOBAL uchar *table2,
                     GLOBAL uchar *table3) {
  uint item = ITEM, number = item / BLOCKS, block = item % BLOCKS, reads = input_bytes / 64;
  if (number >= reads) return;
  // All reads of a message have equal numbers of blocks.
  uint blocks = ((GLOBAL const uint *)input)[1];
  if (blocks > BLOCKS) blocks = BLOCKS;
  uint length = reads * blocks * BLOCK + reads;
  if (length > output_bytes_max) return;
  if (item == 0) *output_bytes = length;
  GLOBAL const uint *read = (GLOBAL const uint *)input + number * READ;
  GLOBAL const uint *volume = (GLOBAL const uint *)table0 + (1 + read[0]) * VOLUME;
  GLOBAL const uint *layers = (GLOBAL const uint *)table1;
  GLOBAL const uint *extents = (GLOBAL const uint *)table2;
  uint let = read[4] != 0 && read[1] == blocks;
  if (block == 0) output[reads * blocks * BLOCK + number] = let ? 0 : 1;
  if (block >= blocks) return;
  uint lba = read[2] + block, place = 0, found = 0;
  for (uint layer = 0; let && !found && layer < volume[1]; layer++) {
    uint first = layers[(volume[0] + layer) * LAYER], low = 0, high = layers[(volume[0] + layer) * LAYER + 1];
    while (low < high) {
      uint middle = (low + high) / 2;
      if (extents[(first + middle) * EXTENT] <= lba) low = middle + 1;
      else high = middle;
    }
    if (low > 0) {
      GLOBAL const uint *extent = extents + (first + low - 1) * EXTENT;
      if (lba - extent[0] < extent[1]) {
        found = 1;
        place = extent[2] + (lba - extent[0]);
      }
    }
  }
  GLOBAL const wide *from = (GLOBAL const wide *)(table3 + (size_t)place * BLOCK);
  GLOBAL wide *to = (GLOBAL wide *)(output + (size_t)(number * blocks + block) * BLOCK);
  for (uint i = 0; i < BLOCK / sizeof(wide); i++) to[i] = found ? from[i] : NOTHING;
}
