// The pseudo-random function of ../proof/src/prf.rs, bit for bit: Philox4x32-10 in counter mode.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// Key and upper counter half of one stream, as `Stream` holds them.
struct Stream {
  u32 key0, key1, high0, high1;
};

// Ten rounds of four lanes.
static __device__ __forceinline__ uint4 philox(uint4 counter, u32 k0, u32 k1) {
  u32 c0 = counter.x, c1 = counter.y, c2 = counter.z, c3 = counter.w;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    u32 hi0 = __umulhi(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
    u32 hi1 = __umulhi(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// Words 4 * index to 4 * index + 3 of a stream.
static __device__ __forceinline__ uint4 philox_block(Stream s, u64 index) {
  uint4 counter = make_uint4((u32)index, (u32)(index >> 32), s.high0, s.high1);
  return philox(counter, s.key0, s.key1);
}
