// A step of a sum over the GPUs of a ring: what a neighbour holds is read over the link and added to
// what is here, word by word and modulo 2^32, so that no order of the GPUs matters.
// Bytes over the link: 16 per vector.
#include "philox.cuh"

extern "C" __global__ void ring_add(uint4 *to, const uint4 *from, u64 vectors) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < vectors; at += stride) {
    uint4 mine = to[at], theirs = from[at];
    to[at] = make_uint4(mine.x + theirs.x, mine.y + theirs.y, mine.z + theirs.z,
                        mine.w + theirs.w);
  }
}
