// What memory is filled with, as ../proof/src/memory.rs says: four words at a time.
#pragma once
#include "philox.cuh"

// The numbers of the patterns, as the agent passes them.
#define PATTERN_PRF 0u
#define PATTERN_COMPLEMENT 1u
#define PATTERN_ADDRESS 2u
#define PATTERN_SLOW 3u
#define PATTERN_WALKING_ONE 4u
#define PATTERN_WALKING_ZERO 5u
// How often the slow fill goes through the pseudo-random function.
#define SLOW_LINKS 256u

static __device__ __forceinline__ u32 address_word(u64 word) { return (u32)(word ^ (word >> 32)); }

// Each link takes what the one before gave as its counter: none can be left out, and no block tells
// anything of another.
static __device__ __forceinline__ uint4 slow_block(Stream s, u64 index) {
  uint4 block = philox_block(s, index);
#pragma unroll 1
  for (u32 link = 1; link < SLOW_LINKS; ++link) {
    block = philox(block, s.key0 + link, s.key1);
  }
  return block;
}

// Which of so many places comes at a step: from the highest on where `down`.
static __device__ __forceinline__ u64 place_at(u64 step, u64 places, u32 down) {
  return down != 0 ? places - 1 - step : step;
}

// Words 4 * index to 4 * index + 3 of the contents.
static __device__ __forceinline__ uint4 contents_block(Stream s, u32 pattern, u64 index) {
  if (pattern == PATTERN_ADDRESS) {
    u64 word = 4 * index;
    return make_uint4(address_word(word), address_word(word + 1), address_word(word + 2),
                      address_word(word + 3));
  }
  if (pattern == PATTERN_SLOW) {
    return slow_block(s, index);
  }
  if (pattern >= PATTERN_WALKING_ONE) {
    // The bits of a block follow each other, and come round to the first.
    u32 first = (u32)(4 * index) + s.key0;
    u32 turned = pattern == PATTERN_WALKING_ZERO ? ~0u : 0u;
    return make_uint4(1u << (first & 31u) ^ turned, 1u << ((first + 1) & 31u) ^ turned,
                      1u << ((first + 2) & 31u) ^ turned, 1u << ((first + 3) & 31u) ^ turned);
  }
  uint4 block = philox_block(s, index);
  if (pattern == PATTERN_COMPLEMENT) {
    block = make_uint4(~block.x, ~block.y, ~block.z, ~block.w);
  }
  return block;
}
