// How the inputs of the tensor products lie in memory, and what becomes of their sums.
//
// A matrix is cut into tiles of 128 rows by 128 bytes, 16 KiB each and one after the other, along a
// row of tiles first. Within a tile, 16-byte chunk c of row r lies at chunk c ^ (r % 8) of its row:
// so a tile is what the tensor units of Hopper take from shared memory as it is, and no eight rows
// meet in a bank.
#pragma once
#include "ptx.cuh"

#define TILE_ROWS 128u
#define TILE_DEPTH 128u
#define TILE_BYTES (TILE_ROWS * TILE_DEPTH)
// Rows of both inputs are a multiple of this; what is beyond n is zero.
#define ROW_MULTIPLE 256u

// Where a byte of a matrix lies; `depth` is the bytes of a row, a multiple of TILE_DEPTH.
DEVICE u64 packed_at(u32 row, u32 byte, u32 depth) {
  u64 tile = (u64)(row / TILE_ROWS) * (depth / TILE_DEPTH) + byte / TILE_DEPTH;
  u32 chunk = (byte % TILE_DEPTH / 16) ^ (row % 8);
  return tile * TILE_BYTES + row % TILE_ROWS * TILE_DEPTH + chunk * 16 + byte % 16;
}

// Which tile of the product a thread block computes: bands of `band` rows of tiles, each walked
// column by column, so that the blocks that run together share their inputs. Bits of `walk` turn the
// rows and the columns round: all walks are equally long and share as much.
DEVICE void product_tile(u32 block, u32 rows, u32 columns, u32 band, u32 walk, u32 *row,
                         u32 *column) {
  u32 first = block / (band * columns) * band;
  u32 high = rows - first < band ? rows - first : band;
  u32 within = block % (band * columns);
  *row = first + within % high;
  *column = within / high;
  if ((walk & 1) != 0) {
    *row = rows - 1 - *row;
  }
  if ((walk & 2) != 0) {
    *column = columns - 1 - *column;
  }
}

// A sum as it is written: the integer that it is. What is none, and so is no sum of these inputs, is
// written as its bits, which are far from any integer that a sum can be.
DEVICE int exact(float sum) {
  int whole = __float2int_rn(sum);
  return (float)whole == sum ? whole : __float_as_int(sum);
}

// Writes two neighbours of a row, of which the left one has an even column.
DEVICE void write_pair(int *product, u32 n, u32 row, u32 column, float left, float right) {
  if (row >= n || column >= n) {
    return;
  }
  int *to = product + (u64)row * n + column;
  if (n % 2 == 0) {
    *(int2 *)to = make_int2(exact(left), exact(right));
  } else {
    to[0] = exact(left);
    if (column + 1 < n) {
      to[1] = exact(right);
    }
  }
}
