// The digest of each block of memory under a fresh key, as ../proof/src/memory.rs defines it: the block's
// words as coefficients of a polynomial at `point`, led by a one, modulo 2^61 - 1.
// It begins with the last block where `down`.
// Shape: one thread block of THREADS threads a memory block of `vectors` 16-byte vectors at a time.
#include "contents.cuh"

#define THREADS 256
#define P 0x1FFFFFFFFFFFFFFFull

static __device__ __forceinline__ u64 folded(u64 word) { return word >= P ? word - P : word; }

static __device__ __forceinline__ u64 plus(u64 a, u64 b) { return folded(a + b); }

static __device__ __forceinline__ u64 times(u64 a, u64 b) {
  u64 low = a * b, high = __umul64hi(a, b);
  return folded((low & P) + (high << 3 | low >> 61));
}

static __device__ u64 power(u64 base, u64 exponent) {
  u64 result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) {
      result = times(result, base);
    }
    base = times(base, base);
  }
  return result;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    memory_digest(const uint4 *memory, u64 blocks, u32 vectors, u64 point, u32 down,
                  u64 *digests) {
  __shared__ u64 sums[THREADS];
  // Thread t takes vectors t, t + THREADS, ... of a block that is thought to be led by as many
  // empty vectors as make it a multiple of THREADS.
  u32 rounds = (vectors + THREADS - 1) / THREADS;
  u32 led_by = rounds * THREADS - vectors;
  u64 step = power(point, 4 * THREADS);
  u64 after = power(point, 4ull * (THREADS - 1 - threadIdx.x));
  u64 leading_one = power(point, 4ull * vectors);
  for (u64 taken = blockIdx.x; taken < blocks; taken += gridDim.x) {
    u64 block = place_at(taken, blocks, down);
    const uint4 *words = memory + block * vectors;
    u64 sum = 0;
    for (u32 round = 0; round < rounds; ++round) {
      u32 at = round * THREADS + threadIdx.x;
      sum = times(sum, step);
      if (at >= led_by) {
        uint4 w = words[at - led_by];
        u64 vector = plus(times(w.x, point), w.y);
        vector = plus(times(vector, point), w.z);
        vector = plus(times(vector, point), w.w);
        sum = plus(sum, vector);
      }
    }
    sums[threadIdx.x] = times(sum, after);
    for (u32 half = THREADS / 2; half != 0; half >>= 1) {
      __syncthreads();
      if (threadIdx.x < half) {
        sums[threadIdx.x] = plus(sums[threadIdx.x], sums[threadIdx.x + half]);
      }
    }
    if (threadIdx.x == 0) {
      digests[block] = plus(sums[0], leading_one);
    }
    __syncthreads();
  }
}
