// Copies memory. Bytes moved: 16 read and 16 written per vector.
#include "stream.cuh"

extern "C" __global__ void __launch_bounds__(STREAM_THREADS, STREAM_BLOCKS)
    stream_copy(uint4 *__restrict__ to, const uint4 *__restrict__ from, u64 vectors, u64 turn) {
  each(turn, vectors, [&](u64 at) { to[at] = from[at]; });
}
