#!/usr/bin/env bash
# What the API's document is worth to those who generate clients from it: it is valid, a Python and a
# TypeScript client are made from it and each walks one reservation against the real server, and
# made-up calls find no answer that the document does not allow.
#
# Needs the debug build of `broker`, Python 3.11 or later with venv, Node 20 or later with npm, and
# the package registries, whose packages are pinned by version and hash.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
here=$root/openapi/clients
broker=${CARGO_TARGET_DIR:-$root/target}/debug/broker
work=$(mktemp -d)
server=
end() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
  rm -rf "$work"
}
trap end EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --require-hashes -r "$here/requirements.txt"
PATH=$work/venv/bin:$PATH

openapi-spec-validator "$root/openapi/broker.json"

# The server: a market of its own, at a free port. Calls are not counted, for they come in thousands.
export BROKER__RATE_LIMITS__ENABLED=false
cd "$work"
key=$("$broker" token create --data-dir data --tenant walkers)
admin=$("$broker" token create --data-dir data --tenant walkers --role admin)
# It is read before the server has come so far as to open it.
: >serve.log
"$broker" serve --data-dir data --simulate --listen 127.0.0.1:0 2>serve.log &
server=$!
for _ in $(seq 60); do
  url=$(sed -n 's/^Serving at \(http:[^ ]*\) .*/\1/p' serve.log)
  [ -n "$url" ] && break
  sleep 0.5
done
[ -n "$url" ] || { cat serve.log >&2; echo "the server did not start; its log is above" >&2; exit 1; }
curl --silent --show-error --fail --retry 30 --retry-delay 1 --output readyz.json "$url/readyz"

echo 'post_hooks: []' >python.yml
openapi-python-client generate --path "$root/openapi/broker.json" --meta none --config python.yml \
  --fail-on-warning --output-path broker_client
PYTHONPATH=. python "$here/walk.py" "$url" "$key"

mkdir typescript
cp "$here"/{package.json,package-lock.json,walk.ts} typescript/
cd typescript
npm ci --silent --no-audit --no-fund --ignore-scripts
npx --no-install openapi-typescript "$root/openapi/broker.json" --default-non-nullable false \
  --output broker.d.ts
npx --no-install tsc --strict --target es2022 --module nodenext --skipLibCheck walk.ts
node walk.js "$url" "$key"
cd ..

made_up_calls() { # with a key, and those of them that are named
  local key=$1
  shift
  schemathesis --config-file "$root/schemathesis.toml" run "$url/openapi.json" --no-color \
    --header "Authorization: Bearer $key" "$@" >made-up.log || {
    grep -v '✅' made-up.log >&2
    echo "the API and its document disagree; the calls are above" >&2
    exit 1
  }
  selected=$(sed -n 's|^ *Selected: *\([0-9]*\)/.*|\1|p' made-up.log)
  total=$(sed -n 's|^ *Selected: *[0-9]*/||p' made-up.log)
  tested=$(sed -n 's|^ *Tested: *||p' made-up.log)
  if [ -z "$tested" ] || [ "$tested" != "$selected" ]; then
    echo "of ${selected:-no} operations only ${tested:-none} were called" >&2
    exit 1
  fi
  echo "made-up calls: $tested of $total operations, $(sed -n 's|^ *\([0-9]* generated\).*|\1|p' made-up.log)"
}
made_up_calls "$key"
[ "$tested" = "$total" ] || { echo "a member's calls left operations out" >&2; exit 1; }
# What a member is refused was tried only as far as the refusal: an administrator gets further.
made_up_calls "$admin" --max-time 90 \
  --include-path-regex '^/(metrics$|v1/(audit|budgets|commitments|credits|spending-limits|provider-accounts|providers|required-tags)(/|$))'
