// Addition of rows of numbers, in OpenCL C and CUDA C++. The input is the number of rows, then the rows. Values are
// added in the order of rows, without contraction, so the results are bit-identical to the processor's.
#ifdef __CUDACC__
typedef unsigned char uchar;
typedef unsigned int uint;
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)
#else
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL kernel void
#define GLOBAL global
#define ITEM get_global_id(0)
#endif

KERNEL add(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_max,
           GLOBAL uint *output_bytes) {
  GLOBAL const uint *head = (GLOBAL const uint *)input;
  uint item = ITEM;
  if (input_bytes < 4) return;
  uint rows = *head, values = rows ? (input_bytes - 4) / 4 / rows : 0;
  if (rows == 0 || rows * values * 4 + 4 != input_bytes || values * 4 > output_max) return;
  GLOBAL const float *from = (GLOBAL const float *)(input + 4);
  if (item < values) {
    float sum = from[item];
    for (uint row = 1; row < rows; row++) sum += from[row * values + item];
    ((GLOBAL float *)output)[item] = sum;
  }
  if (item == 0) *output_bytes = values * 4;
}
