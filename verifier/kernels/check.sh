#!/usr/bin/env bash
# Whether the committed cubins are what the sources give: brings the pinned compiler and assembler into
# a private virtual environment, compiles every pair of matrix.csv and assembles it once more, without
# spills. `--write` writes them anew instead. Then whether the kernels give the shared vectors, on a CPU.
set -euo pipefail
cd "$(dirname "$0")"
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --only-binary=:all: --requirement requirements.txt
case "${1-}" in
  --write) "$environment/bin/python" -B build.py ;;
  "") "$environment/bin/python" -B build.py --check ;;
  *) echo "usage: check.sh [--write]" >&2; exit 2 ;;
esac
emulated/check.sh
