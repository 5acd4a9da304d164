// A grid of threads on a CPU, so that the kernels run where no GPU is.
//
// A thread block is run at a time, each of its threads as a context of its own that is left where it
// waits. Which one goes on is drawn from a seed, and so is when a copy or a product that was only
// asked for is done: at once, or as late as the kernel allows. A kernel that reads too early, or
// writes over what is still needed, so gives another result under some seed; one whose threads wait
// for each other for ever is told.
#pragma once
#define EMULATED

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// All threads of a block are contexts of one thread of this program.
#define __shared__ thread_local

struct Triple {
  unsigned x = 1, y = 1, z = 1;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct int4 {
  int x, y, z, w;
};
struct int2 {
  int x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }

inline void demand(bool holds, const char *otherwise) {
  if (!holds) {
    fprintf(stderr, "%s\n", otherwise);
    exit(1);
  }
}

// Threads that do something together, and what each of them brought.
struct Together {
  unsigned here = 0, times = 0;
  std::vector<void *> brought;
};

struct Context {
  ucontext_t state;
  std::vector<char> stack;
  Triple thread;
  bool over = false;
  std::function<bool()> waits_for;
  // Copies that were asked for, by group; the last group is still open.
  std::deque<std::vector<std::function<void()>>> copies{{}};
};

class Grid {
public:
  Triple block_index, block_size, grid_size;
  Context *now = nullptr;
  std::mt19937 dice;
  // Whether what is asked for is done as late as it may be.
  bool late = false;
  // Copies that are done when they are done.
  std::vector<std::function<void()>> loose;
  std::map<unsigned, Together> together;

  void run(Triple grid, unsigned threads, const std::function<void()> &kernel) {
    grid_size = grid;
    block_size = {threads, 1, 1};
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, 0};
        run_block(threads, kernel);
      }
    }
  }

  // Leaves the thread until this holds.
  void wait(std::function<bool()> holds) {
    if (holds()) {
      return;
    }
    Context *me = now;
    me->waits_for = std::move(holds);
    swapcontext(&me->state, &scheduler_);
  }

  // Brings `mine` to a meeting of `count` threads; the last one to come does the work.
  void meet(unsigned place, unsigned count, unsigned index, void *mine,
            const std::function<void(std::vector<void *> &)> &work) {
    Together &all = together[place];
    all.brought.resize(count);
    all.brought[index] = mine;
    unsigned time = all.times;
    if (++all.here == count) {
      work(all.brought);
      all.here = 0;
      ++all.times;
    }
    wait([&all, time] { return all.times != time; });
  }

private:
  ucontext_t scheduler_;
  std::vector<std::unique_ptr<Context>> contexts_;
  const std::function<void()> *kernel_ = nullptr;

  static Grid *&self() {
    static Grid *grid = nullptr;
    return grid;
  }

  static void enter() {
    Grid *grid = self();
    (*grid->kernel_)();
    grid->now->over = true;
    swapcontext(&grid->now->state, &grid->scheduler_);
  }

  void run_block(unsigned threads, const std::function<void()> &kernel) {
    self() = this;
    kernel_ = &kernel;
    together.clear();
    contexts_.clear();
    for (unsigned thread = 0; thread < threads; ++thread) {
      auto context = std::make_unique<Context>();
      context->stack.resize(96 << 10);
      context->thread = {thread, 0, 0};
      getcontext(&context->state);
      context->state.uc_stack.ss_sp = context->stack.data();
      context->state.uc_stack.ss_size = context->stack.size();
      makecontext(&context->state, enter, 0);
      contexts_.push_back(std::move(context));
    }
    std::vector<Context *> left;
    for (auto &context : contexts_) {
      left.push_back(context.get());
    }
    while (!left.empty()) {
      std::shuffle(left.begin(), left.end(), dice);
      bool moved = false;
      for (Context *context : left) {
        if (!loose.empty() && (!late || dice() % 64 == 0)) {
          land();
        }
        if (context->waits_for && !context->waits_for()) {
          continue;
        }
        context->waits_for = nullptr;
        now = context;
        swapcontext(&scheduler_, &context->state);
        moved = true;
      }
      left.erase(std::remove_if(left.begin(), left.end(), [](Context *c) { return c->over; }),
                 left.end());
      if (!moved && !loose.empty()) {
        land();
        moved = true;
      }
      demand(moved || left.empty(), "the threads of a block wait for each other for ever");
    }
    demand(loose.empty(), "a copy was asked for and not waited for");
  }

  void land() {
    size_t which = dice() % loose.size();
    auto copy = loose[which];
    loose.erase(loose.begin() + (long)which);
    copy();
  }
};

inline Grid grid;
#define threadIdx (grid.now->thread)
#define blockIdx (grid.block_index)
#define blockDim (grid.block_size)
#define gridDim (grid.grid_size)

// Meetings: those of the block, of each warp, of each warp group.
#define BLOCK_MEETS 0u
#define WARP_MEETS (1u + threadIdx.x / 32)
#define GROUP_MEETS (100u + threadIdx.x / 128)

inline void __syncthreads() {
  grid.meet(BLOCK_MEETS, blockDim.x, threadIdx.x, nullptr, [](auto &) {});
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline int __float2int_rn(float value) { return (int)nearbyintf(value); }
inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, 4);
  return bits;
}
inline int __dp4a(int a, int b, int sum) {
  for (int at = 0; at < 32; at += 8) {
    sum += (int)(int8_t)(a >> at) * (int)(int8_t)(b >> at);
  }
  return sum;
}
inline unsigned long long __shfl_down_sync(unsigned, unsigned long long mine, int by) {
  unsigned lane = threadIdx.x % 32;
  unsigned long long taken = mine;
  struct Shared {
    unsigned long long is, *to;
  } shared{mine, &taken};
  grid.meet(WARP_MEETS, 32, lane, &shared, [by](std::vector<void *> &all) {
    for (int at = 0; at + by < 32; ++at) {
      *((Shared *)all[at])->to = ((Shared *)all[at + by])->is;
    }
  });
  return taken;
}
inline void atomicAdd(unsigned long long *to, unsigned long long more) { *to += more; }
inline void atomicMin(unsigned long long *to, unsigned long long other) {
  *to = std::min(*to, other);
}
