// The instructions of Hopper's warp groups, one function each, in the words of the PTX ISA: for
// sm_90a alone. `emulated/` gives each of them a second body.
#pragma once
#include "ptx.cuh"

#ifndef EMULATED

// Makes a barrier in shared memory that `arrivals` threads turn.
DEVICE void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Shows the barriers to the copies that will turn them.
DEVICE void barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void barrier_arrive(u32 barrier) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(barrier)
               : "memory");
}

// Arrives, and has the barrier wait for so many bytes of copies too.
DEVICE void barrier_arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
                   barrier),
               "r"(bytes)
               : "memory");
}

// Waits until the barrier has turned from `parity`: 0 its first turn, 1 its second, and so on.
DEVICE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile("{\n"
               ".reg .pred turned;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 turned, [%0], %1;\n"
               "@turned bra over;\n"
               "bra again;\n"
               "over:\n"
               "}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

// Brings a piece of global memory to shared memory and tells the barrier.
DEVICE void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Before the first product, and whenever its sums were touched by other means.
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the group of the products since the last call.
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `PENDING` of the last groups are under way.
template <int PENDING> DEVICE void products_done() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Between the products and other use of their sums, which the compiler must not move across it.
DEVICE void keep(float (&sums)[32][4]) {
#pragma unroll
  for (u32 j = 0; j < 32; ++j) {
    asm volatile("" : "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])::"memory");
  }
}

#define SUMS \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUM(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define SUM8(j)                                                                                    \
  SUM(j), SUM(j + 1), SUM(j + 2), SUM(j + 3), SUM(j + 4), SUM(j + 5), SUM(j + 6), SUM(j + 7)

// sums += a b on a 64 x 256 tile of 32 bytes of depth, which both lie in shared memory.
struct GroupBf16 {
  DEVICE void multiply_add(float (&sums)[32][4], u64 left, u64 right) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0;"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SUMS
                 "}, %128, %129, add, 1, 1, 0, 0;}"
                 : SUM8(0), SUM8(8), SUM8(16), SUM8(24)
                 : "l"(left), "l"(right));
  }
};

struct GroupFp8 {
  DEVICE void multiply_add(float (&sums)[32][4], u64 left, u64 right) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0;"
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" SUMS
                 "}, %128, %129, add, 1, 1;}"
                 : SUM8(0), SUM8(8), SUM8(16), SUM8(24)
                 : "l"(left), "l"(right));
  }
};

#endif
