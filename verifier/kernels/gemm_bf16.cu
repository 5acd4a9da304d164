// The product of integers in [-8, 8] held as BF16: exact as long as k is below 2^18.
#include "gemm_warps.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_bf16(const char *left, const char *right, int *product, u32 n, u32 depth,
              u32 walk) {
  extern __shared__ __align__(128) char shared[];
  gemm_warps<Bf16>(shared, left, right, product, n, depth, walk);
}
