// The product of integers in [-4, 4] held as FP8 (e4m3).
// Some tensor units keep no more than 13 bits behind the leading one while they add 8-bit products;
// with such entries even they are exact as long as a sum stays below 2^13, which for k = 8,192 is
// more than 13 standard deviations.
#include "gemm_warps.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_fp8(const char *left, const char *right, int *product, u32 n, u32 depth,
             u32 walk) {
  extern __shared__ __align__(128) char shared[];
  gemm_warps<Fp8>(shared, left, right, product, n, depth, walk);
}
