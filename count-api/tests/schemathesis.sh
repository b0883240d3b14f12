#!/usr/bin/env bash
# A property-based client against the running binary: no 5xx, and no answer that the document does not describe.
#
#   count-api/tests/schemathesis.sh [--required] [examples per operation, default 50]
#
# Needs python3 with pip's access to a package index the first time. Where it has to be skipped it says so and ends with 0,
# or with 1 where it is required. TALLY_TEST_BIN names a folder that has the programs; without it they are built.
# The tables are an emulator's, so nothing outside this machine is touched.
set -euo pipefail
cd "$(dirname "$0")/../.."

required=0
if [ "${1:-}" = --required ]; then required=1; shift; fi
examples=${1:-50}
venv=${SCHEMATHESIS_VENV:-${TMPDIR:-/tmp}/tally-schemathesis}
profile=${PROFILE:-debug}
programs=${TALLY_TEST_BIN:-${CARGO_TARGET_DIR:-target}/$profile}

skip() { echo "skipped: $1"; exit "$required"; }

command -v python3 > /dev/null || skip "python3 is not installed"
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv" 2> /dev/null || skip "python3 has no venv module"
    "$venv/bin/pip" install --quiet schemathesis openapi-spec-validator || skip "schemathesis cannot be installed"
fi

if [ -z "${TALLY_TEST_BIN:-}" ]; then
    flag=$([ "$profile" = release ] && echo --release || true)
    cargo build --quiet $flag -p tally-count-api --bins --example stage
fi

[ -x "$programs/examples/stage" ] || skip "$programs has no examples/stage, which cargo build --examples makes"

work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
tables=$(port) api=$(port) admin=$(port)

export AWS_ENDPOINT_URL=http://127.0.0.1:$tables AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
"$programs/examples/stage" "$tables" 100 2> "$work/stage.log" &
pids+=($!)
for _ in $(seq 300); do grep -q posts "$work/stage.log" && break; sleep 0.1; done
# No broker listens where the writes go: 503 has to be described, too.
"$programs/tally-count-api" --listen "127.0.0.1:$api" --admin-listen "127.0.0.1:$admin" \
    --brokers 127.0.0.1:1 --write-budget 50ms --log-format json 2> "$work/api.log" &
pids+=($!)
for _ in $(seq 300); do
    curl -sf "http://127.0.0.1:$admin/readyz" > /dev/null && break
    sleep 0.1
done
curl -sf "http://127.0.0.1:$admin/readyz" > /dev/null || { cat "$work/api.log"; exit 1; }

url=http://127.0.0.1:$api
curl -sf "$url/openapi.json" > "$work/openapi.json"
"$venv/bin/python" -m openapi_spec_validator "$work/openapi.json"

# An endless stream is no answer to wait for. The checks are that every answer is one the document describes: its status, its
# type, its body, its headers. Faults of ours are looked for in the log below, since a 503 is an answer here.
"$venv/bin/schemathesis" run "$work/openapi.json" --url "$url" --max-examples "$examples" --seed 1 \
    --exclude-path-regex ':stream$' --request-timeout 10 --suppress-health-check all \
    --checks status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance
panics=$(grep -c panicked "$work/api.log" || true)
internal=$(grep -c '"status":500' "$work/api.log" || true)
echo "panics: $panics, answers 500: $internal"
[ "$panics" = 0 ] && [ "$internal" = 0 ]
