// The inputs of the tensor products: integers, as ../proof/src/gemm.rs derives them, in the order of
// packed.cuh. A is n x k; B, which is k x n, is written as its transpose.
// Shape: `depth` is the bytes of a row, k entries and zeros; all bytes are zero before this runs.
// `most` is the largest entry: at most 4 as FP8 (e4m3); as BF16 at most 8 where the product must be exact,
// and up to 255, of which each is held exactly, where it only keeps the GPU busy.
#include "packed.cuh"

#define FORMAT_BF16 0u
#define FORMAT_FP8 1u

DEVICE int entry(u32 word, u32 most) { return (int)__umulhi(word, 2 * most + 1) - (int)most; }

// The upper half of the number as a float, which is exact for so few digits.
DEVICE unsigned short as_bf16(int value) {
  return (unsigned short)((u32)__float_as_int((float)value) >> 16);
}

// 0 to 4 are these bytes; the sign is the highest bit.
DEVICE unsigned char as_e4m3(int value) {
  u32 size = (u32)(value < 0 ? -value : value);
  u64 codes = 0x4844403800ull;
  return (unsigned char)((codes >> (8 * size) & 0x7Fu) | (value < 0 ? 0x80u : 0u));
}

DEVICE void write_entry(char *to, u32 row, u32 at, u32 depth, u32 format, int value) {
  if (format == FORMAT_BF16) {
    *(unsigned short *)(to + packed_at(row, 2 * at, depth)) = as_bf16(value);
  } else {
    *(unsigned char *)(to + packed_at(row, at, depth)) = as_e4m3(value);
  }
}

// Shape: `width` is the row length of the matrix as its stream counts it: k for A, n for B.
static __device__ void write_matrix(char *to, Stream stream, u64 count, u32 width, bool transposed,
                                    u32 depth, u32 format, u32 most) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 blocks = (count + 3) / 4;
  for (u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x; block < blocks; block += stride) {
    uint4 w = philox_block(stream, block);
    u32 words[4] = {w.x, w.y, w.z, w.w};
    u32 row = (u32)(4 * block / width), column = (u32)(4 * block % width);
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) {
      if (4 * block + lane < count) {
        write_entry(to, transposed ? column : row, transposed ? row : column, depth, format,
                    entry(words[lane], most));
      }
      if (++column == width) {
        column = 0;
        ++row;
      }
    }
  }
}

extern "C" __global__ void packed_inputs(char *left, char *right, Stream left_stream,
                                         Stream right_stream, u32 n, u32 k, u32 depth, u32 format,
                                         u32 most) {
  u64 count = (u64)n * k;
  write_matrix(left, left_stream, count, k, false, depth, format, most);
  write_matrix(right, right_stream, count, n, true, depth, format, most);
}
