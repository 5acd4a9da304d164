// How memory is compared with what it should hold.
#pragma once
#include "contents.cuh"

// Adds the words in which a block differs, and keeps the lowest such word's index.
static __device__ __forceinline__ void count_differences(uint4 is, uint4 should, u64 at, u64 *bad,
                                                         u64 *lowest) {
  u32 wrong = (u32)(is.x != should.x) | (u32)(is.y != should.y) << 1 |
              (u32)(is.z != should.z) << 2 | (u32)(is.w != should.w) << 3;
  if (wrong != 0) {
    *bad += __popc(wrong);
    u64 word = 4 * at + (u64)(__ffs((int)wrong) - 1);
    *lowest = word < *lowest ? word : *lowest;
  }
}

// `found[0]` grows by the number of words that differ, `found[1]` becomes the lowest such word's
// index when it was larger. Sums and minima of integers do not depend on their order.
static __device__ __forceinline__ void tell_differences(u64 bad, u64 lowest, u64 *found) {
  if (bad != 0) {
    atomicAdd(&found[0], bad);
    atomicMin(&found[1], lowest);
  }
}
