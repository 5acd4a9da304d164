// How memory is streamed through. A walk may begin anywhere (`turn`, below `vectors`) and comes back to the
// start: which vector is met when changes nothing that comes out, nor does how many threads there are.
// What only reads has few threads, each with LOADS vectors under way at a time (`stream`). What writes too has
// a thread for each vector (`each`): on an H200 copies reach 4.27 TB/s so, as the driver's own, and 3.95
// with few threads, whatever each has under way (26 November 2026).
// Shape: STREAM_BLOCKS of STREAM_THREADS threads fit on a multiprocessor of every part at once.
#pragma once
#include "philox.cuh"

#define LOADS 4u
#define STREAM_THREADS 256
#define STREAM_BLOCKS 4

// Where the so-manieth vector of a walk lies.
static __device__ __forceinline__ u64 turned(u64 step, u64 turn, u64 vectors) {
  u64 at = step + turn;
  return at < vectors ? at : at - vectors;
}

// Hands the places of all vectors of this thread to `many`, LOADS at a time, and what is left to `one`.
template <class Many, class One>
static __device__ __forceinline__ void stream(u64 turn, u64 vectors, Many many, One one) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 step = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; step + (LOADS - 1) * stride < vectors; step += LOADS * stride) {
    u64 at[LOADS];
#pragma unroll
    for (u32 load = 0; load < LOADS; ++load) {
      at[load] = turned(step + load * stride, turn, vectors);
    }
    many(at);
  }
  for (; step < vectors; step += stride) {
    one(turned(step, turn, vectors));
  }
}

// Hands the places of all vectors of this thread to `one`, one after the other.
template <class One>
static __device__ __forceinline__ void each(u64 turn, u64 vectors, One one) {
  u64 stride = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
  for (u64 step = (u64)blockIdx.x * blockDim.x + threadIdx.x; step < vectors; step += stride) {
    one(turned(step, turn, vectors));
  }
}
