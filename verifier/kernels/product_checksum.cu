// The order-independent checksum of C, as ../src/gemm.rs defines it: the wrapping sum of every
// entry mixed with its index by the finaliser of SplitMix64. It is added to `sum`.
#include "philox.cuh"

static __device__ __forceinline__ u64 mix(u64 word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
  return word ^ (word >> 31);
}

extern "C" __global__ void product_checksum(const u32 *product, u64 entries, u64 *sum) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 mine = 0;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < entries; at += stride) {
    mine += mix(at << 32 | product[at]);
  }
  for (int lane = 16; lane != 0; lane >>= 1) {
    mine += __shfl_down_sync(0xFFFFFFFFu, mine, lane);
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(sum, mine);
  }
}
