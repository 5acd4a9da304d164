// Fills memory with the contents of one pass.
// Shape: `blocks` is the number of 16-byte blocks; one thread writes a block at a time.
#include "contents.cuh"

extern "C" __global__ void memory_fill(uint4 *memory, u64 blocks, Stream stream, u32 pattern) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < blocks; at += stride) {
    memory[at] = contents_block(stream, pattern, at);
  }
}
