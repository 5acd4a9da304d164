#!/usr/bin/env bash
# Whether the committed cubins are what the sources give: brings the pinned compiler into a private
# virtual environment and compiles every pair of matrix.csv. `--write` writes them anew instead.
# Then whether the tensor products give the shared vectors, on a CPU.
set -euo pipefail
cd "$(dirname "$0")"
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --only-binary=:all: --requirement requirements.txt
case "${1-}" in
  --write) "$environment/bin/python" build.py ;;
  "") "$environment/bin/python" build.py --check ;;
  *) echo "usage: check.sh [--write]" >&2; exit 2 ;;
esac
emulated/check.sh
