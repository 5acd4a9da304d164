// The inputs of the exact product, as ../proof/src/gemm.rs derives them: entries in [-8, 8].
// A is written row by row, n x k; B, which is k x n, is written as its transpose, n x k. Rows have
// `pitch` bytes, a multiple of 16; the bytes beyond k are zero before this runs.
#include "philox.cuh"

static __device__ __forceinline__ signed char entry(u32 word) {
  return (signed char)((int)__umulhi(word, 17u) - 8);
}

// Shape: `width` is the row length of the matrix as its stream counts it: k for A, n for B.
static __device__ void write_entries(signed char *to, Stream stream, u64 count, u32 width,
                                     u64 per_row, u64 per_column) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 blocks = (count + 3) / 4;
  for (u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x; block < blocks; block += stride) {
    uint4 w = philox_block(stream, block);
    u32 words[4] = {w.x, w.y, w.z, w.w};
    u64 row = 4 * block / width;
    u32 column = (u32)(4 * block % width);
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) {
      if (4 * block + lane < count) {
        to[row * per_row + column * per_column] = entry(words[lane]);
      }
      if (++column == width) {
        column = 0;
        ++row;
      }
    }
  }
}

extern "C" __global__ void gemm_inputs(signed char *left, signed char *right, Stream left_stream,
                                       Stream right_stream, u32 n, u32 k, u32 pitch) {
  u64 count = (u64)n * k;
  write_entries(left, left_stream, count, k, pitch, 1);
  write_entries(right, right_stream, count, n, 1, pitch);
}
