// Runs the kernels that stream through memory and holds what they write, or add up, against the shared
// vectors. The argument is their path.
#include "vectors.h"

#include "../product_checksum.cu"
#include "../stream_copy.cu"
#include "../stream_read.cu"
#include "../stream_triad.cu"

// More blocks than are needed, as many, and fewer: each thread takes its part however many there are.
static const unsigned GRIDS[] = {1, 3, 7};
#define BLOCK_THREADS 64

// An array with a border, which shows whether anything is touched beyond it.
struct Array {
  std::vector<uint4> room;
  u64 vectors;

  explicit Array(u64 vectors) : room(vectors + 4, make_uint4(7, 7, 7, 7)), vectors(vectors) {}

  Array(u64 vectors, Stream from) : Array(vectors) {
    for (u64 at = 0; at < vectors; ++at) {
      room[at] = philox_block(from, at);
    }
  }

  uint4 *at() { return room.data(); }

  u64 checksum() const {
    u64 sum = 0;
    for (u64 at = 0; at < 4 * vectors; ++at) {
      sum += mix(at << 32 | (&room[at / 4].x)[at % 4]);
    }
    return sum;
  }

  void expect(u64 wanted, const std::string &what) {
    for (u64 at = vectors; at < room.size(); ++at) {
      demand(room[at].x == 7 && room[at].w == 7, (what + " touches what lies beyond").c_str());
    }
    char is[32];
    snprintf(is, sizeof is, "0x%llx", checksum());
    demand(checksum() == wanted, ("the checksum of " + what + " comes to " + is).c_str());
    // The kernel that a card uses for it.
    u64 sum = 0;
    grid.run({2, 1, 1}, BLOCK_THREADS,
             [&] { product_checksum((const u32 *)at(), 4 * vectors, &sum); });
    demand(sum == wanted, ("the kernel's checksum of " + what + " is another").c_str());
  }
};

int main(int, char **arguments) {
  for (auto &row : vectors(arguments[1], "stream")) {
    u32 scale = (u32)number(row[2]);
    u64 all = number(row[3]), sum = number(row[4]), copied = number(row[5]), triad = number(row[6]);
    Array left(all, stream(row[0])), right(all, stream(row[1]));
    u64 right_copied = right.checksum();
    for (unsigned blocks : GRIDS) {
      // From the start, and from elsewhere: the same comes out.
      u64 turn = blocks == 3 ? 0 : all / blocks;
      turn -= turn == all ? 1 : 0;
      auto run = [&](auto kernel) { grid.run({blocks, 1, 1}, BLOCK_THREADS, kernel); };
      Array target(all);
      run([&] { stream_copy(target.at(), left.at(), all, turn); });
      target.expect(copied, "a copy");
      run([&] { stream_triad(target.at(), left.at(), right.at(), scale, all, turn); });
      target.expect(triad, "two arrays into a third");
      u64 read = 5;
      run([&] { stream_read(left.at(), all, turn, &read); });
      char is[32];
      snprintf(is, sizeof is, "0x%llx", read - 5);
      demand(read - 5 == sum, (std::string("what was read comes to ") + is).c_str());
      left.expect(copied, "what was read");
      right.expect(right_copied, "what was read");
    }
  }
}
