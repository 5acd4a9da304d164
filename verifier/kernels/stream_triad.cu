// to = a + scale * b on words, modulo 2^32, so that the result is exact. Bytes moved: 32 read and
// 16 written per vector.
#include "stream.cuh"

static __device__ __forceinline__ uint4 scaled_sum(uint4 x, uint4 y, u32 scale) {
  return make_uint4(x.x + scale * y.x, x.y + scale * y.y, x.z + scale * y.z, x.w + scale * y.w);
}

extern "C" __global__ void __launch_bounds__(STREAM_THREADS, STREAM_BLOCKS)
    stream_triad(uint4 *__restrict__ to, const uint4 *__restrict__ a, const uint4 *__restrict__ b,
                 u32 scale, u64 vectors, u64 turn) {
  each(turn, vectors, [&](u64 at) { to[at] = scaled_sum(a[at], b[at], scale); });
}
