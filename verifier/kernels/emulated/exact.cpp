// Runs one of the products on the integer units and compares it with the shared vectors.
//
// Compiled once for each kernel: KERNEL is its name, FILE_OF_KERNEL its source. The argument is the
// path of the vectors.
#include "vectors.h"

#include "../gemm_inputs.cu"
#include "../product_checksum.cu"
#include "../product_rows.cu"
#include FILE_OF_KERNEL

int main(int, char **arguments) {
  for (auto &row : vectors(arguments[1], "product")) {
    u32 n = (u32)number(row[0]), k = (u32)number(row[1]);
    if (number(row[2]) != 8) {
      continue;
    }
    u32 pitch = (k + 15) / 16 * 16;
    std::vector<int4> left((size_t)n * pitch / 16), right((size_t)n * pitch / 16);
    grid.run({3, 1, 1}, 64, [&] {
      gemm_inputs((signed char *)left.data(), (signed char *)right.data(), stream(row[3]),
                  stream(row[4]), n, k, pitch);
    });
    // A border shows whether anything is written beyond the product.
    std::vector<int> product((size_t)n * n + 64, 0x5A5A5A5A);
    u32 tiles = (n + TILE - 1) / TILE;
    grid.run({tiles, tiles, 1}, 256, [&] {
      KERNEL((const int *)left.data(), (const int *)right.data(), product.data(), n, pitch);
    });
    for (size_t at = (size_t)n * n; at < product.size(); ++at) {
      demand(product[at] == 0x5A5A5A5A, "something was written beyond the product");
    }
    u64 sum = 0;
    grid.run({2, 1, 1}, 64, [&] { product_checksum((u32 *)product.data(), (u64)n * n, &sum); });
    demand(sum == number(row[5]), ("the checksum of the product of " + row[0] + " is another").c_str());
    // More and fewer thread blocks than rows; a border as above.
    for (u32 blocks : {2u, 200u}) {
      std::vector<u64> sums(n + 1);
      grid.run({blocks, 1, 1}, 64, [&] { product_rows((u32 *)product.data(), n, sums.data()); });
      demand(sums[n] == 0, "something was added beyond the rows");
      for (u32 at = 0; at < n; ++at) {
        u64 should = 0;
        for (u64 entry = (u64)at * n; entry < (u64)(at + 1) * n; ++entry) {
          should += mix(entry << 32 | (u32)product[entry]);
        }
        demand(sums[at] == should, ("the sum of row " + std::to_string(at) + " is another").c_str());
      }
    }
  }
}
