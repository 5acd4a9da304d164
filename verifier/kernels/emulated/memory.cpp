// Runs the kernels on memory: what is filled is compared, inverted both ways and hashed, and what
// comes out is held against the shared vectors. The argument is their path.
#include "vectors.h"

#include "../memory_compare.cu"
#include "../memory_digest.cu"
#include "../memory_fill.cu"
#include "../memory_invert.cu"
#include "../ring_add.cu"

static u32 pattern_of(const std::string &name) {
  std::vector<std::string> names = {"prf", "complement", "address", "slow", "walking_one", "walking_zero"};
  auto found = std::find(names.begin(), names.end(), name);
  demand(found != names.end(), (name + " is no pattern").c_str());
  return (u32)(found - names.begin());
}

struct Found {
  u64 bad = 0, lowest = ~0ull;

  void expect(u64 words, u64 at, const std::string &what) {
    demand(bad == words && lowest == at, ("bad words are not counted by " + what).c_str());
  }
};

// A step of the ring adds every word, carries nothing over, and leaves the neighbour's as they are.
static void check_ring() {
  Stream ours = {1, 2, 3, 4}, theirs = {5, 6, 7, 8};
  std::vector<uint4> mine(301, make_uint4(7, 7, 7, 7)), neighbour(300);
  for (u64 at = 0; at < 300; ++at) {
    mine[at] = philox_block(ours, at);
    neighbour[at] = philox_block(theirs, at);
  }
  grid.run({2, 1, 1}, 64, [&] { ring_add(mine.data(), neighbour.data(), 300, 32); });
  for (u64 at = 0; at < 300; ++at) {
    uint4 a = philox_block(ours, at), b = philox_block(theirs, at), is = mine[at];
    demand(is.x == a.x + b.x && is.y == a.y + b.y && is.z == a.z + b.z && is.w == a.w + b.w &&
               neighbour[at].x == b.x,
           "a step of the ring does not add");
  }
  demand(mine[300].x == 7, "a step of the ring goes too far");
}

int main(int, char **arguments) {
  check_ring();
  for (auto &row : vectors(arguments[1], "memory")) {
    u32 pattern = pattern_of(row[0]);
    Stream from = stream(row[1]);
    u64 point = number(row[2]);
    u32 vectors_of_block = (u32)number(row[3]);
    u64 blocks = number(row[4]), all = blocks * vectors_of_block;
    // A border shows whether anything is touched beyond the memory.
    std::vector<uint4> memory(all + 4, make_uint4(7, 7, 7, 7));
    auto run = [&](auto kernel) { grid.run({3, 1, 1}, 64, kernel); };
    auto inverts = [&](u32 with, u32 down, Found *found) {
      run([&] { memory_invert(memory.data(), all, from, with, down, &found->bad); });
    };
    // Whichever way a kernel goes, the same comes out.
    for (u32 down = 0; down < 2; ++down) {
      std::fill(memory.begin(), memory.begin() + (long)all, make_uint4(9, 9, 9, 9));
      run([&] { memory_fill(memory.data(), all, from, pattern, down); });
      std::vector<u64> digests(blocks);
      grid.run({2, 1, 1}, THREADS, [&] {
        memory_digest(memory.data(), blocks, vectors_of_block, point, down, digests.data());
      });
      u64 sum = 0;
      for (u64 block = 0; block < blocks; ++block) {
        sum += digests[block] * (block + 1);
      }
      char is[32];
      snprintf(is, sizeof is, "0x%llx", sum);
      demand(sum == number(row[5]), ("the digests of " + row[0] + " come to " + is).c_str());

      Found right, wrong;
      run([&] { memory_compare(memory.data(), all, from, pattern, down, &right.bad); });
      right.expect(0, ~0ull, "comparing");
      memory[all - 1].y ^= 1u << 9;
      memory[1].w ^= 1u;
      run([&] { memory_compare(memory.data(), all, from, pattern, down, &wrong.bad); });
      wrong.expect(2, 7, "comparing");
      memory[all - 1].y ^= 1u << 9;
    }
    if (pattern == PATTERN_PRF) {
      // Up, with one bad word left; then down over the complement, where it is bad still.
      Found up, down;
      inverts(PATTERN_PRF, 0, &up);
      up.expect(1, 7, "inverting upwards");
      inverts(PATTERN_COMPLEMENT, 1, &down);
      down.expect(1, 7, "inverting downwards");
      memory[1].w ^= 1u;
      Found after;
      run([&] { memory_compare(memory.data(), all, from, pattern, 0, &after.bad); });
      after.expect(0, ~0ull, "comparing what was inverted twice");
    }
    for (u64 at = all; at < memory.size(); ++at) {
      demand(memory[at].x == 7 && memory[at].w == 7, "something was touched beyond the memory");
    }
  }
}
