// Reads memory and adds the sum of its words, modulo 2^64, to `sum`. Bytes moved: 16 per vector.
#include "philox.cuh"

extern "C" __global__ void stream_read(const uint4 *from, u64 vectors, u64 *sum) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 mine = 0;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < vectors; at += stride) {
    uint4 w = from[at];
    mine += (u64)w.x + w.y + w.z + w.w;
  }
  for (int lane = 16; lane != 0; lane >>= 1) {
    mine += __shfl_down_sync(0xFFFFFFFFu, mine, lane);
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(sum, mine);
  }
}
