// The exact integer product C = A B: int8 entries, 32-bit sums, no rounding anywhere and no order
// of summation that matters, so its variants differ in how they go and in nothing that they give.
// Shape: `left` is A, n rows of `pitch` bytes; `right` is B transposed, likewise; `product` is C,
// n x n. A thread block of 256 threads computes a tile of 128 x 128, a thread 8 x 8 of it, and goes
// through the inner dimension from its end where BACKWARDS.
#pragma once
#include "philox.cuh"

#define TILE 128
#define DEPTH 8
#define PER_THREAD 8

template <bool BACKWARDS>
static __device__ __forceinline__ void gemm_integers(const int *left, const int *right, int *product,
                                                     u32 n, u32 pitch) {
  __shared__ int a[DEPTH][TILE + 4];
  __shared__ int b[DEPTH][TILE + 4];
  u32 row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  u32 words = pitch / 4;
  // Threads 0..127 bring rows of A, 128..255 rows of B: 32 bytes each.
  u32 mine = threadIdx.x % TILE;
  bool brings_left = threadIdx.x < TILE;
  u32 row = (brings_left ? row0 : column0) + mine;
  const int *source = (brings_left ? left : right) + (u64)row * words;
  int (*target)[TILE + 4] = brings_left ? a : b;
  u32 y = threadIdx.x / 16, x = threadIdx.x % 16;
  int sums[PER_THREAD][PER_THREAD] = {};
  u32 last = (words - 1) / DEPTH * DEPTH;
  for (u32 step = 0; step < words; step += DEPTH) {
    u32 at = BACKWARDS ? last - step : step;
#pragma unroll
    for (u32 half = 0; half < DEPTH; half += 4) {
      int4 v = make_int4(0, 0, 0, 0);
      if (row < n && at + half < words) {
        v = *(const int4 *)(source + at + half);
      }
      target[half][mine] = v.x;
      target[half + 1][mine] = v.y;
      target[half + 2][mine] = v.z;
      target[half + 3][mine] = v.w;
    }
    __syncthreads();
#pragma unroll
    for (u32 depth = 0; depth < DEPTH; ++depth) {
      int right_words[PER_THREAD];
#pragma unroll
      for (u32 j = 0; j < PER_THREAD; ++j) {
        right_words[j] = b[depth][x + 16 * j];
      }
#pragma unroll
      for (u32 i = 0; i < PER_THREAD; ++i) {
        int left_word = a[depth][y + 16 * i];
#pragma unroll
        for (u32 j = 0; j < PER_THREAD; ++j) {
          sums[i][j] = __dp4a(left_word, right_words[j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (u32 i = 0; i < PER_THREAD; ++i) {
    u32 r = row0 + y + 16 * i;
#pragma unroll
    for (u32 j = 0; j < PER_THREAD; ++j) {
      u32 c = column0 + x + 16 * j;
      if (r < n && c < n) {
        product[(u64)r * n + c] = sums[i][j];
      }
    }
  }
}
