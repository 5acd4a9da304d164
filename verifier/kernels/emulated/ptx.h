// What the instructions of ptx.cuh and ptx_groups.cuh do, as the PTX ISA describes them.
#pragma once
#include "grid.h"

#include "../ptx.cuh"

// Shared memory begins at no round address.
#define SHARED_BEGINS 128u
#define SHARED_BYTES (227u << 10)
extern "C" {
alignas(128) thread_local char shared[SHARED_BYTES];
}

inline u32 shared_address(const void *pointer) {
  ptrdiff_t at = (const char *)pointer - shared;
  if (at >= 0 && at < (ptrdiff_t)SHARED_BYTES) {
    return SHARED_BEGINS + (u32)at;
  }
  // Barriers have their own place and are known by their address alone.
  return 0x40000000u + (u32)((uintptr_t)pointer & 0xFFFFFFu);
}

inline char *in_shared(u32 address, u32 bytes) {
  demand(address >= SHARED_BEGINS && address + bytes <= SHARED_BEGINS + SHARED_BYTES &&
             address % std::min(bytes, 16u) == 0,
         "an address is outside of shared memory, or not aligned");
  return shared + (address - SHARED_BEGINS);
}

inline void copy_async(u32 to, const void *from) {
  demand((uintptr_t)from % 16 == 0, "a copy is not aligned");
  char *target = in_shared(to, 16);
  auto copy = [target, from] { memcpy(target, from, 16); };
  if (grid.late) {
    grid.now->copies.back().push_back(copy);
  } else {
    copy();
  }
}

inline void commit_copies() { grid.now->copies.emplace_back(); }

template <int PENDING> void copies_done() {
  auto &groups = grid.now->copies;
  while (groups.size() > PENDING + 1u) {
    for (auto &copy : groups.front()) {
      copy();
    }
    groups.pop_front();
  }
}

inline void load_matrices(u32 (&to)[4], u32 row) {
  struct Lane {
    u32 *to, row;
  } mine{to, row};
  grid.meet(WARP_MEETS, 32, threadIdx.x % 32, &mine, [](std::vector<void *> &all) {
    for (u32 matrix = 0; matrix < 4; ++matrix) {
      u32 banks = 0;
      for (u32 row = 0; row < 8; ++row) {
        u32 address = ((Lane *)all[8 * matrix + row])->row;
        const char *from = in_shared(address, 16);
        banks |= 1u << (address / 16 % 8);
        for (u32 at = 0; at < 4; ++at) {
          memcpy(&((Lane *)all[4 * row + at])->to[matrix], from + 4 * at, 4);
        }
      }
      demand(banks == 0xFF, "rows of a matrix share a bank");
    }
  });
}

inline float of_bf16(const unsigned char *at) {
  u32 bits = (u32)(at[0] | at[1] << 8) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline float of_e4m3(const unsigned char *at) {
  int exponent = *at >> 3 & 15, fraction = *at & 7;
  demand((*at & 0x7F) != 0x7F, "an 8-bit entry is no number");
  float size = exponent == 0 ? (float)fraction / 512
                             : (float)((8 + fraction) << exponent) / 1024;
  return *at & 0x80 ? -size : size;
}

// 32 bytes of a row or a column, as numbers.
template <u32 BYTES> struct Depth {
  float values[32 / BYTES];

  explicit Depth(const char *bytes) {
    for (u32 at = 0; at < 32 / BYTES; ++at) {
      auto from = (const unsigned char *)bytes + at * BYTES;
      values[at] = BYTES == 2 ? of_bf16(from) : of_e4m3(from);
    }
  }

  float times(const Depth &other) const {
    float sum = 0;
    for (u32 at = 0; at < 32 / BYTES; ++at) {
      sum += values[at] * other.values[at];
    }
    return sum;
  }
};

template <u32 BYTES> struct WarpFormat {
  static void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 *b) {
    struct Lane {
      float *sum;
      u32 a[4], b[2];
    } mine{sum, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    grid.meet(WARP_MEETS, 32, threadIdx.x % 32, &mine, [](std::vector<void *> &all) {
      // Four threads hold a row of 32 bytes: four bytes of its first half and four of its second.
      char rows[16][32], columns[8][32];
      for (u32 lane = 0; lane < 32; ++lane) {
        Lane *from = (Lane *)all[lane];
        for (u32 half = 0; half < 2; ++half) {
          u32 at = 16 * half + lane % 4 * 4;
          memcpy(&rows[lane / 4][at], &from->a[2 * half], 4);
          memcpy(&rows[lane / 4 + 8][at], &from->a[2 * half + 1], 4);
          memcpy(&columns[lane / 4][at], &from->b[half], 4);
        }
      }
      std::vector<Depth<BYTES>> left(rows, rows + 16), right(columns, columns + 8);
      for (u32 lane = 0; lane < 32; ++lane) {
        for (u32 at = 0; at < 4; ++at) {
          u32 row = lane / 4 + at / 2 * 8, column = lane % 4 * 2 + at % 2;
          ((Lane *)all[lane])->sum[at] += left[row].times(right[column]);
        }
      }
    });
  }
};

struct Bf16 : WarpFormat<2> {};
struct Fp8 : WarpFormat<1> {};

// Barriers, by address.
struct Barrier {
  u32 arrivals, missing, turns = 0;
  int64_t bytes = 0;

  void turn() {
    if (missing == 0 && bytes == 0) {
      missing = arrivals;
      ++turns;
    }
  }
};
inline std::map<u32, Barrier> barriers_at;

inline void barrier_init(u32 barrier, u32 arrivals) { barriers_at[barrier] = {arrivals, arrivals}; }
inline void barriers_made() {}
inline void barrier_arrive(u32 barrier) {
  Barrier &at = barriers_at.at(barrier);
  demand(at.missing > 0, "more arrivals than a barrier waits for");
  --at.missing;
  at.turn();
}
inline void barrier_arrive_expecting(u32 barrier, u32 bytes) {
  barriers_at.at(barrier).bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(u32 barrier, u32 parity) {
  Barrier &at = barriers_at.at(barrier);
  grid.wait([&at, parity] { return at.turns % 2 != parity; });
}
inline void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier) {
  demand((uintptr_t)from % 16 == 0 && bytes % 16 == 0, "a bulk copy is not aligned");
  in_shared(to + bytes - 16, 16);
  char *target = in_shared(to, 16);
  Barrier &tells = barriers_at.at(barrier);
  grid.loose.push_back([=, &tells] {
    memcpy(target, from, bytes);
    tells.bytes -= bytes;
    tells.turn();
  });
}

// Products that were asked for, by warp group and group of products; the last one is still open.
inline std::map<u32, std::deque<std::vector<std::function<void()>>>> products_asked;
// How many of them each thread has closed, and how many of its warp group are done.
inline std::map<u32, u32> products_closed, products_finished;

inline void products_begin() {}
inline void keep(float (&)[32][4]) {}

inline void commit_products() {
  u32 group = GROUP_MEETS;
  grid.meet(group, 128, threadIdx.x % 128, nullptr, [group](auto &) {
    if (products_asked[group].empty()) {
      products_asked[group].emplace_back();
    }
    products_asked[group].emplace_back();
    ++products_closed[group];
  });
}

template <int PENDING> void products_done() {
  u32 group = GROUP_MEETS;
  while (products_closed[group] - products_finished[group] > PENDING) {
    for (auto &product : products_asked[group].front()) {
      product();
    }
    products_asked[group].pop_front();
    ++products_finished[group];
  }
}

// A row of a matrix that is described as for the tensor units: 32 bytes of it.
inline std::array<char, 32> described_row(u64 matrix, u32 row) {
  demand(matrix >> 62 == 1 && (matrix >> 49 & 7) == 0, "the rows are not turned within 128 bytes");
  u32 begins = (u32)(matrix & 0x3FFF) << 4, apart = (u32)(matrix >> 32 & 0x3FFF) << 4;
  std::array<char, 32> bytes;
  for (u32 chunk = 0; chunk < 2; ++chunk) {
    u32 address = begins + row / 8 * apart + row % 8 * 128 + 16 * chunk;
    address ^= (address >> 7 & 7) << 4;
    memcpy(bytes.data() + 16 * chunk, in_shared(address, 16), 16);
  }
  return bytes;
}

template <u32 BYTES> struct GroupFormat {
  static void multiply_add(float (&sums)[32][4], u64 left, u64 right) {
    struct Thread {
      float (*sums)[4];
      u64 left, right;
    } mine{sums, left, right};
    u32 group = GROUP_MEETS;
    grid.meet(group, 128, threadIdx.x % 128, &mine, [group](std::vector<void *> &all) {
      std::vector<Thread> threads;
      for (void *thread : all) {
        threads.push_back(*(Thread *)thread);
        demand(threads[0].left == threads.back().left && threads[0].right == threads.back().right,
               "the threads of a warp group describe different matrices");
      }
      auto product = [threads] {
        std::vector<Depth<BYTES>> rows, columns;
        for (u32 row = 0; row < 64; ++row) {
          rows.emplace_back(described_row(threads[0].left, row).data());
        }
        for (u32 column = 0; column < 256; ++column) {
          columns.emplace_back(described_row(threads[0].right, column).data());
        }
        for (u32 thread = 0; thread < 128; ++thread) {
          for (u32 j = 0; j < 32; ++j) {
            for (u32 at = 0; at < 4; ++at) {
              u32 row = thread / 32 * 16 + thread % 32 / 4 + at / 2 * 8;
              u32 column = 8 * j + thread % 4 * 2 + at % 2;
              float &sum = threads[thread].sums[j][at];
              sum += rows[row].times(columns[column]);
              demand(BYTES == 2 || fabsf(sum) < 8192, "a sum of 8-bit products is too large");
            }
          }
        }
      };
      if (grid.late) {
        if (products_asked[group].empty()) {
          products_asked[group].emplace_back();
        }
        products_asked[group].back().push_back(product);
      } else {
        product();
      }
    });
  }
};

struct GroupBf16 : GroupFormat<2> {};
struct GroupFp8 : GroupFormat<1> {};
