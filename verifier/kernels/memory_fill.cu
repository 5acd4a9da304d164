// Fills memory with the contents of one pass, from the highest address on where `down`.
// Shape: `blocks` is the number of 16-byte blocks; one thread writes a block at a time.
#include "contents.cuh"

extern "C" __global__ void memory_fill(uint4 *memory, u64 blocks, Stream stream, u32 pattern,
                                       u32 down) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 step = (u64)blockIdx.x * blockDim.x + threadIdx.x; step < blocks; step += stride) {
    u64 at = place_at(step, blocks, down);
    memory[at] = contents_block(stream, pattern, at);
  }
}
