// to = a + scale * b on words, modulo 2^32, so that the result is exact. Bytes moved: 32 read and
// 16 written per vector.
#include "philox.cuh"

extern "C" __global__ void stream_triad(uint4 *to, const uint4 *a, const uint4 *b, u32 scale,
                                        u64 vectors) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < vectors; at += stride) {
    uint4 x = a[at], y = b[at];
    to[at] = make_uint4(x.x + scale * y.x, x.y + scale * y.y, x.z + scale * y.z,
                        x.w + scale * y.w);
  }
}
