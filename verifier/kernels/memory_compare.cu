// Compares memory with the contents of one pass.
// `found[0]` grows by the number of words that differ, `found[1]` becomes the lowest such word's
// index when it was larger. Sums and minima of integers do not depend on their order.
#include "contents.cuh"

extern "C" __global__ void memory_compare(const uint4 *memory, u64 blocks, Stream stream,
                                          u32 pattern, u64 *found) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 bad = 0, lowest = ~0ull;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < blocks; at += stride) {
    uint4 is = memory[at];
    uint4 should = contents_block(stream, pattern, at);
    u32 wrong = (u32)(is.x != should.x) | (u32)(is.y != should.y) << 1 |
                (u32)(is.z != should.z) << 2 | (u32)(is.w != should.w) << 3;
    if (wrong != 0) {
      bad += __popc(wrong);
      u64 word = 4 * at + (u64)(__ffs((int)wrong) - 1);
      lowest = word < lowest ? word : lowest;
    }
  }
  if (bad != 0) {
    atomicAdd(&found[0], bad);
    atomicMin(&found[1], lowest);
  }
}
