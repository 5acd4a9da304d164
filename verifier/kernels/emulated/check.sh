#!/usr/bin/env bash
# Whether the tensor products give the vectors that they share with the reference, their threads and
# instructions played by a CPU.
set -euo pipefail
cd "$(dirname "$0")"
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT

# Kernel, bytes of an entry, threads of a block, blocks (0: one for each tile).
check() {
  c++ -std=c++17 -O2 -Wall -Wextra -Werror -Wno-unknown-pragmas -DKERNEL="$1" \
    "-DFILE_OF_KERNEL=\"../$1.cu\"" -DENTRY_BYTES="$2" -DBLOCK_THREADS="$3" -DBLOCKS="$4" \
    gemm.cpp -o "$programs/$1"
  "$programs/$1" ../vectors.csv
  echo "$1 gives the shared vectors"
}

check gemm_bf16 2 256 0
check gemm_fp8 1 256 0
check gemm_bf16_groups 2 384 2
check gemm_fp8_groups 1 384 2
