// gemm_bf16 for the warp groups of Hopper.
#include "gemm_groups.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_bf16_groups(const char *left, const char *right, int *product, u32 n, u32 depth,
                     u32 walk) {
  extern __shared__ __align__(128) char shared[];
  __shared__ u64 barriers[2 * STAGES];
  gemm_groups<GroupBf16>(shared, barriers, left, right, product, n, depth, walk);
}
