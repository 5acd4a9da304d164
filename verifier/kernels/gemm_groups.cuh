// The product C = A B of integers on the tensor units, warp group by warp group (wgmma, sm_90a).
//
// As in gemm_warps.cuh, no order of summation matters. One warp of the first warp group brings tiles
// of the inputs, which lie as the tensor units take them (packed.cuh); the other two compute.
// Shape: a thread block of 384 threads computes tiles of 128 x 256, each computing warp group 64 x
// 256 of it, one tile after the other. It goes through the depth in stages of 128 bytes, four of
// which are under way at a time.
// Shared memory: STAGES * STAGE_BYTES, and SLACK so that it can begin at a multiple of 1,024.
#pragma once
#include "packed.cuh"
#include "ptx_groups.cuh"

#define BLOCK_ROWS 128u
#define BLOCK_COLUMNS 256u
#define LEFT_BYTES (BLOCK_ROWS * TILE_DEPTH)
#define RIGHT_BYTES (BLOCK_COLUMNS * TILE_DEPTH)
#define STAGE_BYTES (LEFT_BYTES + RIGHT_BYTES)
#define STAGES 4u
#define SLACK 1024u
#define THREADS 384u
#define GROUP 128u
#define COMPUTING_WARPS 8u
// Depth that one instruction takes. Units: bytes.
#define STEP 32u
// Rows of tiles that are computed together, so that their inputs stay in the cache.
#define BAND 8u

// How the tensor units find a matrix: eight rows of 128 bytes at a time, their chunks turned as in
// packed.cuh, the next eight 1,024 bytes further. Addresses and distances count 16 bytes.
DEVICE u64 matrix_at(u32 address) {
  u64 eight_rows_apart = 1024 / 16, turned_in_128_bytes = 1;
  return (u64)(address >> 4 & 0x3FFF) | 1ull << 16 | eight_rows_apart << 32 |
         turned_in_128_bytes << 62;
}

struct Product {
  int *entries;
  u32 n, rows, columns, stages, walk;
};

// Brings the tiles of all products of this thread block, one stage after the other.
DEVICE void bring_tiles(const Product &product, const char *left, const char *right, u32 depth,
                        u32 base, u32 full, u32 empty) {
  u64 along = (u64)(depth / TILE_DEPTH) * TILE_BYTES;
  u32 brought = 0;
  for (u32 tile = blockIdx.x; tile < product.rows * product.columns; tile += gridDim.x) {
    u32 row, column;
    product_tile(tile, product.rows, product.columns, BAND, product.walk, &row, &column);
    const char *a = left + row * along, *b = right + 2 * column * along;
    for (u32 stage = 0; stage < product.stages; ++stage, ++brought) {
      u32 place = brought % STAGES, to = base + place * STAGE_BYTES;
      // The first time around all places are empty.
      barrier_wait(empty + 8 * place, (brought / STAGES + 1) % 2);
      barrier_arrive_expecting(full + 8 * place, STAGE_BYTES);
      u64 at = (u64)stage * TILE_BYTES;
      copy_bulk(to, a + at, LEFT_BYTES, full + 8 * place);
      copy_bulk(to + LEFT_BYTES, b + at, TILE_BYTES, full + 8 * place);
      copy_bulk(to + LEFT_BYTES + TILE_BYTES, b + along + at, TILE_BYTES, full + 8 * place);
    }
  }
}

template <class Format>
DEVICE void compute_tiles(const Product &product, u32 base, u32 full, u32 empty) {
  u32 group = threadIdx.x / GROUP - 1, warp = threadIdx.x % GROUP / 32, lane = threadIdx.x % 32;
  // Each warp tells for itself: that its own products are done says nothing of the others'.
  bool tells = lane == 0;
  u32 taken = 0;
  for (u32 tile = blockIdx.x; tile < product.rows * product.columns; tile += gridDim.x) {
    float sums[32][4];
#pragma unroll
    for (u32 j = 0; j < 32; ++j) {
#pragma unroll
      for (u32 at = 0; at < 4; ++at) {
        sums[j][at] = 0;
      }
    }
    keep(sums);
    for (u32 stage = 0; stage < product.stages; ++stage, ++taken) {
      u32 place = taken % STAGES;
      barrier_wait(full + 8 * place, taken / STAGES % 2);
      u32 a = base + place * STAGE_BYTES + group * 64 * TILE_DEPTH;
      u32 b = base + place * STAGE_BYTES + LEFT_BYTES;
      products_begin();
#pragma unroll
      for (u32 step = 0; step < TILE_DEPTH; step += STEP) {
        Format::multiply_add(sums, matrix_at(a + step), matrix_at(b + step));
      }
      commit_products();
      // The stage before was read to its end when only this one is under way.
      products_done<1>();
      if (tells && stage > 0) {
        barrier_arrive(empty + 8 * ((taken - 1) % STAGES));
      }
    }
    products_done<0>();
    keep(sums);
    if (tells) {
      barrier_arrive(empty + 8 * ((taken - 1) % STAGES));
    }
    u32 tile_row, tile_column;
    product_tile(tile, product.rows, product.columns, BAND, product.walk, &tile_row, &tile_column);
    u32 row = tile_row * BLOCK_ROWS + group * 64 + warp * 16 + lane / 4;
    u32 column = tile_column * BLOCK_COLUMNS + lane % 4 * 2;
#pragma unroll
    for (u32 j = 0; j < 32; ++j) {
      write_pair(product.entries, product.n, row, column + 8 * j, sums[j][0], sums[j][1]);
      write_pair(product.entries, product.n, row + 8, column + 8 * j, sums[j][2], sums[j][3]);
    }
  }
}

template <class Format>
DEVICE void gemm_groups(char *shared, u64 *barriers, const char *left, const char *right,
                        int *entries, u32 n, u32 depth, u32 walk) {
  u32 base = (shared_address(shared) + SLACK - 1) / SLACK * SLACK;
  u32 full = shared_address(barriers), empty = full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (u32 place = 0; place < STAGES; ++place) {
      barrier_init(full + 8 * place, 1);
      barrier_init(empty + 8 * place, COMPUTING_WARPS);
    }
    barriers_made();
  }
  __syncthreads();
  Product product = {entries, n, (n + BLOCK_ROWS - 1) / BLOCK_ROWS,
                     (n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, depth / TILE_DEPTH, walk};
  if (threadIdx.x >= GROUP) {
    compute_tiles<Format>(product, base, full, empty);
  } else if (threadIdx.x == 0) {
    bring_tiles(product, left, right, depth, base, full, empty);
  }
}
