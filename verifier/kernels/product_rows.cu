// What the entries of each row of C add to its checksum (product_checksum.cu), added to `sums`.
// Shape: `product` is n x n; thread blocks take a row at a time.
#include "mix.cuh"

extern "C" __global__ void product_rows(const u32 *product, u32 n, u64 *sums) {
  for (u32 row = blockIdx.x; row < n; row += gridDim.x) {
    u64 first = (u64)row * n;
    u64 mine = 0;
    for (u32 column = threadIdx.x; column < n; column += blockDim.x) {
      u64 at = first + column;
      mine += mix(at << 32 | product[at]);
    }
    add_of_warp(mine, sums + row);
  }
}
