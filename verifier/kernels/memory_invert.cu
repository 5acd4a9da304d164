// One half of a moving inversion: each block is compared with the contents of a pass, and its
// complement is written in its place before the next one is read. `down` is whether it begins at the
// highest address. `found` grows as in differences.cuh.
#include "differences.cuh"

extern "C" __global__ void memory_invert(uint4 *memory, u64 blocks, Stream stream, u32 pattern,
                                         u32 down, u64 *found) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 bad = 0, lowest = ~0ull;
  for (u64 step = (u64)blockIdx.x * blockDim.x + threadIdx.x; step < blocks; step += stride) {
    u64 at = place_at(step, blocks, down);
    uint4 is = memory[at];
    count_differences(is, contents_block(stream, pattern, at), at, &bad, &lowest);
    memory[at] = make_uint4(~is.x, ~is.y, ~is.z, ~is.w);
  }
  tell_differences(bad, lowest, found);
}
