#!/usr/bin/env bash
# Builds the agent as nodes get it: for the C library of 2012 (glibc 2.17), so that it starts on
# every distribution that has a driver for its GPUs, and small. Checks both, and that it starts on
# a machine without any GPU. Prints the file, its size and its SHA-256.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest_glibc=2.17
limit_bytes=3700000

tools=target/agent-tools
if ! "$tools/bin/python" -c 'import ziglang' 2>/dev/null; then
  python3 -m venv --clear "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement verifier/agent-tools.txt
fi

target=x86_64-unknown-linux-gnu
# Repeated runs name what they were measured with. Of a file that is loaded at one place no pointer must be
# moved, which would take a list of them.
AGENT_COMMIT=$(git rev-parse HEAD 2>/dev/null || true)
export AGENT_COMMIT
PATH="$PWD/$tools/bin:$PATH" cargo-zigbuild rustc --locked --package verifier --bin verifier \
  --profile agent --target "$target.$oldest_glibc" -- -C "link-arg=-Wl,-T,$PWD/verifier/agent.ld" \
  -C "link-arg=-Wl,--hash-style=gnu" -C relocation-model=static
agent=target/$target/agent/verifier

bytes=$(stat -c %s "$agent")
if [ "$bytes" -ge "$limit_bytes" ]; then
  echo "build-agent: the agent has $bytes bytes, it must stay under $limit_bytes" >&2
  exit 1
fi

# Symbols carry the version of the C library that they came with.
newest=$(grep -aoE 'GLIBC_[0-9]+(\.[0-9]+)+' "$agent" | sed 's/GLIBC_//' | sort -uV | tail -n 1)
if [ "$(printf '%s\n' "$newest" "$oldest_glibc" | sort -V | tail -n 1)" != "$oldest_glibc" ]; then
  echo "build-agent: the agent needs glibc $newest, nodes have $oldest_glibc" >&2
  exit 1
fi

status=0
said=$(env -i "$agent" run 2>&1 >/dev/null) || status=$?
case "$status $said" in
  # On a machine with GPUs it would check them; what it says there is no matter of this script.
  "2 this machine has no libcuda.so.1"* | [01]" "*) ;;
  *) echo "build-agent: the agent does not start cleanly: status $status, $said" >&2; exit 1 ;;
esac

printf '%s %s bytes, glibc %s, sha256 %s\n' \
  "$agent" "$bytes" "$newest" "$(sha256sum "$agent" | cut -d' ' -f1)"
