// Runs one of the tensor products and compares it with the product of the integers.
//
// Compiled once for each kernel: KERNEL is its name, FILE_OF_KERNEL its source, ENTRY_BYTES 2 for
// BF16 and 1 for FP8, BLOCK_THREADS the threads of a block, BLOCKS how many blocks are started, or 0
// for one for each tile. The argument is the path of the vectors.
#include "ptx.h"
#include "vectors.h"

#include "../packed_inputs.cu"
#include "../product_checksum.cu"
#include FILE_OF_KERNEL

// The ways in which the tiles of a product are walked.
#define WALKS 4

static std::vector<int> entries(Stream from, u32 rows, u32 width, u32 most) {
  std::vector<int> all;
  for (u64 at = 0; at < (u64)rows * width; ++at) {
    uint4 block = philox_block(from, at / 4);
    u32 words[4] = {block.x, block.y, block.z, block.w};
    all.push_back((int)((u64)words[at % 4] * (2 * most + 1) >> 32) - (int)most);
  }
  return all;
}

static u32 rounded(u64 value, u32 multiple) {
  return (u32)((value + multiple - 1) / multiple * multiple);
}

// The bytes of a matrix, at an address as round as that of device memory.
struct Matrix {
  std::vector<char> room;
  char *at;

  explicit Matrix(u64 bytes) : room(bytes + 256) {
    at = room.data() + (256 - (uintptr_t)room.data() % 256) % 256;
  }
};

int main(int, char **arguments) {
  for (auto &row : vectors(arguments[1], "product")) {
    u32 n = (u32)number(row[0]), k = (u32)number(row[1]), most = (u32)number(row[2]);
    Stream left_stream = stream(row[3]), right_stream = stream(row[4]);
    u64 checksum = number(row[5]);
    if (ENTRY_BYTES == 1 && most > 4) {
      continue;
    }
    auto a = entries(left_stream, n, k, most), b = entries(right_stream, k, n, most);
    std::vector<int> should((size_t)n * n);
    for (u32 i = 0; i < n; ++i) {
      for (u32 l = 0; l < k; ++l) {
        for (u32 j = 0; j < n; ++j) {
          should[(size_t)i * n + j] += a[(size_t)i * k + l] * b[(size_t)l * n + j];
        }
      }
    }
    u32 depth = rounded((u64)k * ENTRY_BYTES, TILE_DEPTH);
    u64 bytes = (u64)rounded(n, ROW_MULTIPLE) * depth;
    Matrix left(bytes), right(bytes);
    grid.run({3, 1, 1}, 64, [&] {
      packed_inputs(left.at, right.at, left_stream, right_stream, n, k, depth, 2 - ENTRY_BYTES, most);
    });
    // Each walk over the product with another order of what happens.
    for (u32 seed = 0; seed < WALKS; ++seed) {
      u32 walk = seed;
      grid.dice.seed(seed);
      grid.late = seed % 2 == 1;
      // A border shows whether anything is written beyond the product.
      std::vector<int> product((size_t)n * n + 64, 0x5A5A5A5A);
      u32 tiles = rounded(n, BLOCK_ROWS) / BLOCK_ROWS * (rounded(n, BLOCK_COLUMNS) / BLOCK_COLUMNS);
      u32 blocks = BLOCKS == 0 ? tiles : std::min<u32>(BLOCKS, tiles);
      memset(shared, 0x7B, sizeof shared);
      grid.run({blocks, 1, 1}, BLOCK_THREADS,
               [&] { KERNEL(left.at, right.at, product.data(), n, depth, walk); });
      std::string of = " of " + std::to_string(n) + " x " + std::to_string(k) + ", seed " +
                       std::to_string(seed);
      for (size_t at = 0; at < product.size(); ++at) {
        int is = product[at], wanted = at < should.size() ? should[at] : 0x5A5A5A5A;
        if (is != wanted) {
          std::string at_entry = "entry " + std::to_string(at) + of + " is ";
          demand(false, (at_entry + std::to_string(is) + ", not " + std::to_string(wanted)).c_str());
        }
      }
      u64 sum = 0;
      grid.run({2, 1, 1}, 64, [&] { product_checksum((u32 *)product.data(), (u64)n * n, &sum); });
      demand(sum == checksum, ("the checksum" + of + " is another").c_str());
    }
  }
}
