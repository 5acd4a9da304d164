// The instructions that have no name in C++, one function each, in the words of the PTX ISA.
// `emulated/` gives each of them a second body, by which the kernels run on a CPU.
#pragma once
#include "philox.cuh"

#define DEVICE static __device__ __forceinline__

#ifndef EMULATED

// Where a pointer into shared memory points, as the instructions below take it.
DEVICE u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Brings 16 bytes from global to shared memory, some time before `copies_done` says so.
DEVICE void copy_async(u32 to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Closes the group of the copies since the last call.
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `PENDING` of the last groups are under way.
template <int PENDING> DEVICE void copies_done() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8 x 16 byte matrices, whose rows lie where threads 0-7, 8-15, 16-23 and 24-31 point: thread
// 4 r + q gets bytes 4 q to 4 q + 3 of row r of each.
DEVICE void load_matrices(u32 (&to)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

// sum += a b on a 16 x 8 tile: a is 16 rows and b 8 columns of 32 bytes.
struct Bf16 {
  DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

struct Fp8 {
  DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

#endif
