// A step of a sum over the GPUs of a ring: what a neighbour holds is read over the link and added to
// what is here, word by word and modulo 2^32, so that no order of the GPUs matters.
// Bytes over the link: 16 per vector.
#include "stream.cuh"

static __device__ __forceinline__ uint4 sum_of(uint4 a, uint4 b) {
  return make_uint4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

extern "C" __global__ void __launch_bounds__(STREAM_THREADS, STREAM_BLOCKS)
    ring_add(uint4 *__restrict__ to, const uint4 *__restrict__ from, u64 vectors, u64 turn) {
  auto many = [&](const u64 (&at)[LOADS]) {
    uint4 mine[LOADS], theirs[LOADS];
#pragma unroll
    for (u32 load = 0; load < LOADS; ++load) {
      theirs[load] = from[at[load]];
      mine[load] = to[at[load]];
    }
#pragma unroll
    for (u32 load = 0; load < LOADS; ++load) {
      to[at[load]] = sum_of(mine[load], theirs[load]);
    }
  };
  stream(turn, vectors, many, [&](u64 at) { to[at] = sum_of(to[at], from[at]); });
}
