// Addition of rows of numbers. The input is the number of rows, then the rows. Values are added in the order of rows,
// without contraction, so the results are bit-identical to the processor's.
#pragma OPENCL FP_CONTRACT OFF

kernel void add(global const uchar *input, uint input_bytes, global uchar *output, uint output_max,
                global uint *output_bytes) {
  global const uint *head = (global const uint *)input;
  uint item = get_global_id(0);
  if (input_bytes < 4) return;
  uint rows = *head, values = rows ? (input_bytes - 4) / 4 / rows : 0;
  if (rows == 0 || rows * values * 4 + 4 != input_bytes || values * 4 > output_max) return;
  global const float *from = (global const float *)(input + 4);
  if (item < values) {
    float sum = from[item];
    for (uint row = 1; row < rows; row++) sum += from[row * values + item];
    ((global float *)output)[item] = sum;
  }
  if (item == 0) *output_bytes = values * 4;
}
