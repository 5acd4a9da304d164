// gemm_exact from the end of the inner dimension.
#include "gemm_exact.cuh"

extern "C" __global__ void __launch_bounds__(256)
    gemm_exact_back(const int *left, const int *right, int *product, u32 n, u32 pitch) {
  gemm_integers<true>(left, right, product, n, pitch);
}
