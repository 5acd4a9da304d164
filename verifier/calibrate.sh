#!/usr/bin/env bash
# Calibrates the GPUs of this machine unattended: part by part, so that whatever ends one of them costs no
# other, and from where an earlier run into the same folder came. The vendor's libraries of the Python that
# is installed (cuBLASLt, NCCL) are found by themselves.
#
#     calibrate.sh AGENT OUT FLOORS_VERSION [further arguments of `verifier calibrate`]
#
# A part that takes longer than CALIBRATE_PART_SECONDS (7200) ends all: a driver that hangs would be paid for
# without end. So does a GPU of which no floor can be made, before anything is run on it. One that was given
# up (a process of it was lost, memory was not to be had) is tried again, as a part that crashed.
#
# What every floor needs is looked for first: a C compiler (`cc`), or the library that it would make, brought
# along as OUT/shim.so. What only figures beside the floors need is named where it is missing.
#
# Exit status: that of `verifier calibrate`, or 124 where a part ran out of its time. OUT/floors.csv has the rows,
# where there are any; in a checkout `verifier/record-calibration.sh OUT` puts all of it where it belongs.
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

# Whether what stands before a driver in one of the faults can be made here.
compiles() {
  local made status=0
  made=$(mktemp)
  echo '#include <dlfcn.h>' | cc -shared -fPIC -x c - -ldl -o "$made" 2>/dev/null || status=$?
  rm -f "$made"
  return "$status"
}
if [ ! -e "$out/shim.so" ] && ! compiles; then
  cat >&2 <<END
calibrate: there is no C compiler (cc) that makes a library here, and without one no floor is made.
Install one (apt-get install gcc libc6-dev), or make the library elsewhere, on a system that is no newer, by
  cc -shared -fPIC -O1 verifier/src/calibrate/staged/shim.c -ldl -o shim.so
and bring it along as $out/shim.so.
END
  exit 2
fi

# Whether the loader finds a library of which the name begins so.
loads() {
  local folder
  while read -r -d : folder; do
    if [ -n "$folder" ] && compgen -G "$folder/$1*" >/dev/null; then return 0; fi
  done <<<"$LD_LIBRARY_PATH:"
  PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -F "$1" >/dev/null
}
missing() {
  echo "calibrate: warning: $1" >&2
}
if ! command -v python3 >/dev/null; then
  missing "no python3: no copies by a framework, and libraries that only a Python package has are not found"
elif ! python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; then
  missing "python3 has no torch: the driver's copies stand in for a framework's"
fi
loads libcublasLt.so || missing "no libcublasLt.so: products are held against nothing (pip install nvidia-cublas-cu12)"

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
      # Where it came to stays, and it goes on from there.
      4)
        if [ "$part" != measure ]; then break; fi
        echo "calibrate: a GPU was given up, attempt $attempt of $attempts" >&2
        if [ "$attempt" -eq "$attempts" ]; then exit 4; fi
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
