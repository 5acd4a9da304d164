// The order-independent checksum of C, as ../proof/src/gemm.rs defines it: the wrapping sum of every
// entry mixed with its index. It is added to `sum`.
#include "mix.cuh"

extern "C" __global__ void product_checksum(const u32 *product, u64 entries, u64 *sum) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 mine = 0;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < entries; at += stride) {
    mine += mix(at << 32 | product[at]);
  }
  add_of_warp(mine, sum);
}
