#!/usr/bin/env bash
# Calibrates the GPUs of this machine unattended: part by part, so that whatever ends one of them costs no
# other, and from where an earlier run into the same folder came. The vendor's libraries of the Python that
# is installed (cuBLASLt, NCCL) are found by themselves.
#
#     calibrate.sh AGENT OUT FLOORS_VERSION [further arguments of `verifier calibrate`]
#
# A part that takes longer than CALIBRATE_PART_SECONDS (7200) ends all: a driver that hangs would be paid for
# without end. So does a GPU of which no floor can be made, before anything is run on it.
#
# Exit status: that of `verifier calibrate`, or 124 where a part ran out of its time. OUT/floors.csv has the rows, where there are any; in a checkout
# `verifier/merge-floors.sh OUT/floors.csv` puts them into the table.
set -euo pipefail

if [ "$#" -lt 3 ]; then
  echo "usage: calibrate.sh AGENT OUT FLOORS_VERSION [ARGUMENT...]" >&2
  exit 2
fi
agent=$1 out=$2 version=$3
shift 3
limit_seconds=${CALIBRATE_PART_SECONDS:-7200}

# Folders of libraries beneath the packages, but for those that only stand in for a driver.
libraries() {
  python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null | while read -r packages; do
    find "$packages" -mindepth 2 -maxdepth 2 -type d -name lib
  done
}
while read -r folder; do
  if [ -n "$folder" ] && ! ls "$folder"/libcuda.so* >/dev/null 2>&1; then
    LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
  fi
done <<<"$(libraries)"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"

# Gives its exit status, and 124 where its time was over: `timeout` gives another one where it had to kill it.
calibrate() {
  local began=$SECONDS status=0
  timeout --kill-after=30 "$limit_seconds" \
    "$agent" calibrate --out "$out" --floors-version "$version" "$@" || status=$?
  if [ "$status" -ge 124 ] && [ $((SECONDS - began)) -ge "$limit_seconds" ]; then
    status=124
  fi
  return "$status"
}

# What was done until then is kept in the folder: the same command goes on from it.
out_of_time() {
  echo "calibrate: $1 took longer than $limit_seconds s" >&2
  exit 124
}

attempts=3
for part in measure clean fault={bandwidth_hogs,memory_held,preloaded_shim,one_poses_as_two,work_shrunk,memory_invented}; do
  for ((attempt = 1; attempt <= attempts; attempt++)); do
    status=0
    calibrate --part "$part" "$@" || status=$?
    case $status in
      # What it comes to is said at the end.
      0 | 1) break ;;
      2) exit 2 ;;
      # Of the runs nothing would follow.
      3)
        if [ "$part" = measure ]; then exit 3; fi
        break
        ;;
      124) out_of_time "part $part" ;;
      *) echo "calibrate: part $part ended with status $status, attempt $attempt of $attempts" >&2 ;;
    esac
  done
done

status=0
calibrate "$@" || status=$?
[ "$status" -ne 124 ] || out_of_time "the whole"
if [ -e "$out/floors.csv" ]; then
  echo "The rows are in $out/floors.csv, the page is $out/calibration.md."
fi
exit "$status"
