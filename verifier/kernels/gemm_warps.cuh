// The product C = A B of integers on the tensor units, warp by warp (mma.sync).
//
// The inputs are integers, small enough that every sum is one that single precision holds, so no
// order of summation matters and the result is that of gemm_exact on the same integers.
// Shape: a thread block of 256 threads computes a tile of 128 x 256, each of its eight warps 64 x 64
// of it. It goes through the depth in stages of 64 bytes, four of which are under way at a time.
// Shared memory: STAGES * STAGE_BYTES.
#pragma once
#include "packed.cuh"

#define BLOCK_ROWS 128u
#define BLOCK_COLUMNS 256u
#define STAGE_DEPTH 64u
#define STAGES 4u
#define STAGE_BYTES ((BLOCK_ROWS + BLOCK_COLUMNS) * STAGE_DEPTH)
#define THREADS 256u
#define CHUNKS_PER_ROW (STAGE_DEPTH / 16)
// Rows of a stage that the threads bring together.
#define ROWS_AT_ONCE (THREADS / CHUNKS_PER_ROW)
#define BRINGS_LEFT (BLOCK_ROWS / ROWS_AT_ONCE)
#define BRINGS_RIGHT (BLOCK_COLUMNS / ROWS_AT_ONCE)
// Rows of tiles that are computed together, so that their inputs stay in the cache.
#define BAND 8u

// Where a chunk lies within the rows of a stage: two rows share the banks, so every other row
// pair is turned by one chunk.
DEVICE u32 staged_at(u32 row, u32 chunk) {
  return row * STAGE_DEPTH + ((chunk ^ (row / 2 % CHUNKS_PER_ROW)) * 16);
}

// What a warp takes from a stage for 32 bytes of depth.
struct Fragments {
  u32 left[4][4];
  u32 right[4][4];
};

DEVICE void load_fragments(Fragments &to, u32 left, u32 right, u32 step) {
  u32 lane = threadIdx.x % 32;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    u32 row = 16 * i + lane % 16;
    load_matrices(to.left[i], left + staged_at(row, 2 * step + lane / 16));
  }
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
    u32 row = 16 * j + lane / 16 * 8 + lane % 8;
    load_matrices(to.right[j], right + staged_at(row, 2 * step + lane / 8 % 2));
  }
}

template <class Format>
DEVICE void multiply_fragments(float (&sums)[4][8][4], const Fragments &by) {
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
      Format::multiply_add(sums[i][j], by.left[i], &by.right[j / 2][j % 2 * 2]);
    }
  }
}

template <class Format>
DEVICE void gemm_warps(char *shared, const char *left, const char *right, int *product, u32 n,
                       u32 depth, u32 walk) {
  u32 rows = (n + BLOCK_ROWS - 1) / BLOCK_ROWS, columns = (n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  u32 tile_row, tile_column;
  product_tile(blockIdx.x, rows, columns, BAND, walk, &tile_row, &tile_column);
  u32 row0 = tile_row * BLOCK_ROWS, column0 = tile_column * BLOCK_COLUMNS;

  // Each thread brings the same chunk of every ROWS_AT_ONCE-th row. The rows that it brings are
  // alike modulo 8, so a chunk's place within its tile differs by the tile alone.
  u32 brought = threadIdx.x / CHUNKS_PER_ROW, chunk = threadIdx.x % CHUNKS_PER_ROW;
  u32 base = shared_address(shared);
  u32 lands = base + staged_at(brought, chunk);
  const char *left_from = left + packed_at(row0 + brought, chunk * 16, depth);
  const char *right_from = right + packed_at(column0 + brought, chunk * 16, depth);
  u64 right_tiles_apart = (u64)(depth / TILE_DEPTH) * TILE_BYTES;
  u32 stages = depth / STAGE_DEPTH;
  // The other half of a tile's depth is where the highest bit of the chunk is turned.
  u64 turned = (brought % 8 & 4) != 0 ? ~(u64)63 : 64;

  auto bring = [&](u32 stage) {
    if (stage < stages) {
      u64 at = (u64)(stage / 2) * TILE_BYTES + (stage % 2 != 0 ? turned : 0);
      u32 to = lands + stage % STAGES * STAGE_BYTES;
#pragma unroll
      for (u32 i = 0; i < BRINGS_LEFT; ++i) {
        u32 further = i * ROWS_AT_ONCE;
        copy_async(to + further * STAGE_DEPTH, left_from + at + further * TILE_DEPTH);
      }
#pragma unroll
      for (u32 i = 0; i < BRINGS_RIGHT; ++i) {
        u32 further = i * ROWS_AT_ONCE;
        u64 tiles = further / TILE_ROWS * right_tiles_apart;
        copy_async(to + (BLOCK_ROWS + further) * STAGE_DEPTH,
                   right_from + at + tiles + further % TILE_ROWS * TILE_DEPTH);
      }
    }
    // A group without copies keeps the count of groups.
    commit_copies();
  };

  u32 warp = threadIdx.x / 32;
  u32 warp_row = warp / 4 * 64, warp_column = warp % 4 * 64;
  u32 left_at = base + warp_row * STAGE_DEPTH;
  u32 right_at = base + (BLOCK_ROWS + warp_column) * STAGE_DEPTH;
  float sums[4][8][4] = {};
  Fragments first, second;
  for (u32 stage = 0; stage < STAGES - 1; ++stage) {
    bring(stage);
  }
  copies_done<STAGES - 2>();
  __syncthreads();
  load_fragments(first, left_at, right_at, 0);
  for (u32 stage = 0; stage < stages; ++stage) {
    u32 now = stage % STAGES * STAGE_BYTES, next = (stage + 1) % STAGES * STAGE_BYTES;
    load_fragments(second, left_at + now, right_at + now, 1);
    // Into the place of the stage before, which all have taken what they need from.
    bring(stage + STAGES - 1);
    multiply_fragments<Format>(sums, first);
    copies_done<STAGES - 2>();
    __syncthreads();
    // Beyond the last stage this takes what is not used.
    load_fragments(first, left_at + next, right_at + next, 0);
    multiply_fragments<Format>(sums, second);
  }

  u32 lane = threadIdx.x % 32;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
      u32 row = row0 + warp_row + 16 * i + lane / 4;
      u32 column = column0 + warp_column + 8 * j + lane % 4 * 2;
      write_pair(product, n, row, column, sums[i][j][0], sums[i][j][1]);
      write_pair(product, n, row + 8, column, sums[i][j][2], sums[i][j][3]);
    }
  }
}
