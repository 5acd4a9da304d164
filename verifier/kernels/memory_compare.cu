// Compares memory with the contents of one pass.
// `found` grows as in differences.cuh.
#include "differences.cuh"

extern "C" __global__ void memory_compare(const uint4 *memory, u64 blocks, Stream stream,
                                          u32 pattern, u64 *found) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 bad = 0, lowest = ~0ull;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < blocks; at += stride) {
    count_differences(memory[at], contents_block(stream, pattern, at), at, &bad, &lowest);
  }
  tell_differences(bad, lowest, found);
}
