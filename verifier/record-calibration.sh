#!/usr/bin/env bash
# Puts a calibration that came to its end where it belongs in a checkout: its rows into the table of floors,
# its raw report among the fixtures that are replayed (`tests/it/recorded.rs`), and its page at the end of
# docs/calibration.md, in place of an earlier one of the same GPU on the same day.
#
#     record-calibration.sh [--without-rows] OUT [CHECKOUT]
#
# OUT is what calibrate.sh wrote. Nothing is changed where it holds no rows: then some GPU is no reference, or
# fewer runs were made than floors need. With --without-rows report and page are recorded all the same, and
# the table of floors stays as it is. Ids and serial numbers of the GPUs are left out.
set -euo pipefail
rows=true
if [ "${1-}" = --without-rows ]; then
  rows=false
  shift
fi
out=${1:?usage: record-calibration.sh [--without-rows] OUT [CHECKOUT]}
here=$(cd "$(dirname "$0")" && pwd)
checkout=${2:-$here/..}
needed=(calibration.json calibration.md)
if $rows; then needed+=(floors.csv); fi
for file in "${needed[@]}"; do
  if [ ! -s "$out/$file" ]; then
    echo "record-calibration: $out/$file is missing: $out/calibration.md says why; run calibrate.sh again" >&2
    exit 2
  fi
done

# Of all rows the GPU is the same kind, or the first one names it: gpu, metric and kernel follow the version.
# Without rows it is the name that its driver gives the first one.
if $rows; then
  gpu=$(head -n 1 "$out/floors.csv" | cut -d, -f2)
else
  gpu=$(sed -n 's/^ *"name": "\(NVIDIA [^"]*\)".*/\1/p' "$out/calibration.json" | head -n 1)
fi
day=$(sed -n 's/^  "measured_at": "\([0-9-]\{10\}\)T.*/\1/p' "$out/calibration.json" | head -n 1)
if [ -z "$gpu" ] || [ -z "$day" ]; then
  echo "record-calibration: $out names no GPU, or $out/calibration.json no day" >&2
  exit 2
fi
name=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu")-$day

if $rows; then
  "$here/merge-floors.sh" "$out/floors.csv" "$checkout/verifier/data/floors.csv"
fi

fixtures=$checkout/verifier/fixtures/calibration
mkdir -p "$fixtures"
sed -e 's/\("uuid": \)"[^"]*"/\1"GPU-left-out"/' -e 's/\("serial": \)"[^"]*"/\1null/' \
  "$out/calibration.json" >"$fixtures/$name.json"

# The page stands two levels below the head of docs/calibration.md, between two marks.
page=$checkout/docs/calibration.md
begin="<!-- calibration $name -->" end="<!-- end of calibration $name -->"
joined=$(mktemp "$page.XXXXXX")
trap 'rm -f "$joined"' EXIT
before=$(awk -v begin="$begin" -v end="$end" '
  $0 == begin { skipped = 1 }
  !skipped { print }
  $0 == end { skipped = 0 }
' "$page")
{
  printf '%s\n\n%s\n' "$before" "$begin"
  sed -e "1s/.*/# $gpu, $day/" -e 's/^#/###/' "$out/calibration.md"
  echo "$end"
} >"$joined"
cat "$joined" >"$page"
if $rows; then
  echo "$name: rows, $fixtures/$name.json and $page; build the agent with these floors and run the tests"
else
  echo "$name: $fixtures/$name.json and $page, and no rows"
fi
