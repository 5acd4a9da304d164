#!/usr/bin/env bash
# Prints the rows of verifier/data/driver_libraries.csv for packages of NVIDIA's driver for x86-64, which
# hold libcuda and NVML as their maker published them. From a distribution's archive or the maker's own,
# and never from a node:
#
#   apt-get download libcuda1 libnvidia-ml1 && verifier/driver-libraries.sh ./*.deb
#
# Debian has them in its component non-free.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 PACKAGE.deb…" >&2; exit 2; }

into=$(mktemp -d)
trap 'rm -rf "$into"' EXIT
for package in "$@"; do
  rm -rf "${into:?}/files"
  dpkg-deb --extract "$package" "$into/files"
  source="$(dpkg-deb --show --showformat '${Package} ${Version}' "$package")"
  found=$(find "$into/files" -type f \( -name 'libcuda.so.*.*' -o -name 'libnvidia-ml.so.*.*' \) -path '*x86_64*')
  [ -n "$found" ] || { echo "$package: no libcuda and no NVML for x86-64 in it" >&2; exit 1; }
  while read -r file; do
    name=$(basename "$file")
    echo "${name#*.so.},${name%%.so.*},$(sha256sum <"$file" | cut -c 1-64),$source"
  done <<<"$found"
done | sort -u | awk -F, '
  # One row for a file, with all packages it comes in.
  { file = $1 "," $2 "," $3 }
  file == last { printf "; %s", $4; next }
  { printf "%s%s,%s", (NR > 1 ? "\n" : ""), file, $4; last = file }
  END { print "" }
'
