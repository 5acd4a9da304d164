#!/usr/bin/env bash
# Whether the kernels give the vectors that they share with the reference, their threads and
# instructions played by a CPU.
set -euo pipefail
cd "$(dirname "$0")"
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT

# Source, name of the program, vectors, and what else it is compiled with.
play() {
  c++ -std=c++17 -O2 -Wall -Wextra -Werror -Wno-unknown-pragmas "${@:4}" "$1" -o "$programs/$2"
  "$programs/$2" "$3"
  echo "$2 gives the shared vectors"
}

# Kernel, bytes of an entry, threads of a block, blocks (0: one for each tile).
check() {
  play gemm.cpp "$1" ../vectors.csv -DKERNEL="$1" "-DFILE_OF_KERNEL=\"../$1.cu\"" \
    -DENTRY_BYTES="$2" -DBLOCK_THREADS="$3" -DBLOCKS="$4"
}

play memory.cpp memory ../memory_vectors.csv
play stream.cpp stream ../stream_vectors.csv
for kernel in gemm_exact gemm_exact_back; do
  play exact.cpp "$kernel" ../vectors.csv -DKERNEL="$kernel" "-DFILE_OF_KERNEL=\"../$kernel.cu\""
done
check gemm_bf16 2 256 0
check gemm_fp8 1 256 0
check gemm_bf16_groups 2 384 2
check gemm_fp8_groups 1 384 2
