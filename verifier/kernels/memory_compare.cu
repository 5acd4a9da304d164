// Compares memory with the contents of one pass, from the highest address on where `down`.
// `found` grows as in differences.cuh.
#include "differences.cuh"

extern "C" __global__ void memory_compare(const uint4 *memory, u64 blocks, Stream stream,
                                          u32 pattern, u32 down, u64 *found) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 bad = 0, lowest = ~0ull;
  for (u64 step = (u64)blockIdx.x * blockDim.x + threadIdx.x; step < blocks; step += stride) {
    u64 at = place_at(step, blocks, down);
    count_differences(memory[at], contents_block(stream, pattern, at), at, &bad, &lowest);
  }
  tell_differences(bad, lowest, found);
}
