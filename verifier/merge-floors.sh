#!/usr/bin/env bash
# Puts the rows of a calibration into the table of floors, in place of those of the same GPU, metric and
# kernels.
#
#     merge-floors.sh ROWS [TABLE]
set -euo pipefail
rows=${1:?usage: merge-floors.sh ROWS [TABLE]}
table=${2:-$(dirname "$0")/data/floors.csv}
merged=$(mktemp "$table.XXXXXX")
trap 'rm -f "$merged"' EXIT
# Only the last column, the source, is ever quoted.
awk -F, '
  { key = $2 "," $3 "," $4 }
  NR == FNR { new[key] = 1; added = added $0 "\n"; next }
  !(key in new) { print }
  END { printf "%s", added }
' "$rows" "$table" >"$merged"
cat "$merged" >"$table"
