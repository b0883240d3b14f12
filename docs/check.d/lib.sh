# What the checks share. Sourced, so it is not executable and not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
ROOT=$PWD
TALLY_TEST_BIN=${TALLY_TEST_BIN:?the folder with the programs; docs/check sets it}
SCRATCH=$(mktemp -d)
PIDS=()
AT_END=()

finish() {
  local code=$? command
  for command in "${AT_END[@]}"; do eval "$command" >>"$SCRATCH/end.log" 2>&1 || true; done
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
  if ((code == 0 || code == 77)); then rm -rf "$SCRATCH"; else echo "what it left is in $SCRATCH"; fi
  exit $code
}
trap finish EXIT

skip() {
  echo "$*"
  exit 77
}

# need COMMAND ADVICE: skips where a command is missing.
need() { command -v "$1" >/dev/null || skip "$1 is not installed: $2"; }

fail() {
  echo "$*" >&2
  exit 1
}

# until_true SECONDS WHAT COMMAND..: repeats a command until it succeeds.
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < deadline)) || fail "waited in vain for $what"
    sleep 0.2
  done
}

# start_stack [FLAG..]: the whole pipeline in one process, on any ports; sets API, BROKERS and DYNAMODB.
start_stack() {
  "$TALLY_TEST_BIN/tally-localstack" --api-port 0 --kafka-port 0 --dynamodb-port 0 --admin-listen off \
    --log-format json "$@" >"$SCRATCH/stack.out" 2>"$SCRATCH/stack.log" &
  local pid=$!
  PIDS+=("$pid")
  until_true 60 "the stack" grep -q '^ready' "$SCRATCH/stack.out"
  API=$(sed -n 's|^  API  *\(http://[^/]*\)/.*|\1|p' "$SCRATCH/stack.out")
  BROKERS=$(sed -n 's|^  Kafka  *\([^ ]*\).*|\1|p' "$SCRATCH/stack.out")
  DYNAMODB=$(sed -n 's|^  DynamoDB  *\([^ ]*\).*|\1|p' "$SCRATCH/stack.out")
}

# start_kafka TOPIC:PARTITIONS,..: an Apache Kafka of its own; sets BROKERS and ENGINES.
start_kafka() {
  ENGINES=$SCRATCH/engines
  local code=0
  localstack/engines up --folder "$ENGINES" --only kafka --any-ports --topics "$1" >"$SCRATCH/kafka.env" 2>"$SCRATCH/kafka.log" || code=$?
  ((code != 69)) || skip "$(tail -1 "$SCRATCH/kafka.log")"
  AT_END+=('"$ROOT/localstack/engines" down --folder "$ENGINES"')
  ((code == 0)) || fail "$(cat "$SCRATCH/kafka.log")"
  BROKERS=$(sed -n 's/^export TALLY_BROKERS=//p' "$SCRATCH/kafka.env")
}

import() { "$TALLY_TEST_BIN/tally-consumer" --brokers "$BROKERS" import "$@"; }
