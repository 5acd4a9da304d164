// Reads memory and adds the sum of its words, modulo 2^64, to `sum`. Bytes moved: 16 per vector.
#include "stream.cuh"

extern "C" __global__ void __launch_bounds__(STREAM_THREADS, STREAM_BLOCKS)
    stream_read(const uint4 *__restrict__ from, u64 vectors, u64 turn, u64 *__restrict__ sum) {
  u64 mine = 0;
  auto add = [&](uint4 w) { mine += (u64)w.x + w.y + w.z + w.w; };
  auto many = [&](const u64 (&at)[LOADS]) {
    uint4 w[LOADS];
#pragma unroll
    for (u32 load = 0; load < LOADS; ++load) {
      w[load] = from[at[load]];
    }
#pragma unroll
    for (u32 load = 0; load < LOADS; ++load) {
      add(w[load]);
    }
  };
  stream(turn, vectors, many, [&](u64 at) { add(from[at]); });
  for (int lane = 16; lane != 0; lane >>= 1) {
    mine += __shfl_down_sync(0xFFFFFFFFu, mine, lane);
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(sum, mine);
  }
}
