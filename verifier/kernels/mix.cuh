// The finaliser of SplitMix64, by which an entry of a product is mixed with its index (../proof/src/gemm.rs).
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
#pragma once
#include "philox.cuh"

static __device__ __forceinline__ u64 mix(u64 word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
  return word ^ (word >> 31);
}

// Adds what all lanes of a warp have to a sum.
static __device__ __forceinline__ void add_of_warp(u64 mine, u64 *sum) {
  for (int lane = 16; lane != 0; lane >>= 1) {
    mine += __shfl_down_sync(0xFFFFFFFFu, mine, lane);
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(sum, mine);
  }
}
