// The exact product, from the beginning of the inner dimension.
#include "gemm_exact.cuh"

extern "C" __global__ void __launch_bounds__(256)
    gemm_exact(const int *left, const int *right, int *product, u32 n, u32 pitch) {
  gemm_integers<false>(left, right, product, n, pitch);
}
