#!/usr/bin/env bash
# Ten minutes with a real account: tables of their own, the four services on this machine over them, likes and unlikes, every
# count compared, a recount, and everything deleted again.
#
#   docs/smoke-aws.sh                    # region and credentials from the environment, as for the aws command
#   BROKERS=b-1.msk:9098 FLAGS="--tls --sasl msk-iam --msk-region eu-west-1" docs/smoke-aws.sh    # over MSK
#   REDIS=rediss://cache:6379 docs/smoke-aws.sh                                                   # with ElastiCache
#   KEEP=1 docs/smoke-aws.sh             # leaves the tables
#
# It needs the aws command, python3, and the programs in TALLY_TEST_BIN (built with --release where it is not set; for MSK
# with --features tls or msk-iam). Without BROKERS it starts Apache Kafka here, which needs Java and Maven; without REDIS a Redis. With
# MSK the topics smoke-likes and smoke-likes.dlq have to be there, and empty (TOPIC names another). The account needs:
# cloudformation deploy, and all of dynamodb on tables that begin with `tally-smoke-`. It writes some 5,000 likes.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
for command in aws python3; do command -v $command >/dev/null || { echo "$command is not installed" >&2; exit 69; }; done
# The programs read the one, older aws commands the other.
AWS_REGION=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || true)}}
export AWS_REGION AWS_DEFAULT_REGION=$AWS_REGION
aws dynamodb list-tables --max-items 1 >/dev/null || { echo "no region, no credentials, or no permission to list tables" >&2; exit 78; }
if [[ -z ${TALLY_TEST_BIN:-} ]]; then
  cargo build --release --locked --workspace --bins
  TALLY_TEST_BIN=${CARGO_TARGET_DIR:-target}/release
fi
PREFIX=tally-smoke-$(date +%s)-
SCRATCH=$(mktemp -d)
PIDS=()
ENGINES=

finish() {
  local code=$? table pid
  set +e
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null; done
  [[ -z $ENGINES ]] || localstack/engines down --folder "$ENGINES" 2>/dev/null
  if [[ -z ${KEEP:-} ]]; then
    say "deleting the tables"
    aws cloudformation delete-stack --stack-name "${PREFIX}data"
    # The template keeps tables that hold data: these are named one by one.
    for table in likes like_counts checkpoints recounts; do
      aws dynamodb delete-table --table-name "$PREFIX$table" --output text --query TableDescription.TableStatus
    done
  fi
  if ((code)); then
    echo "FAILED with $code; logs are in $SCRATCH" >&2
    tail -n 3 "$SCRATCH"/*.log >&2
  else
    rm -rf "$SCRATCH"
  fi
  exit $code
}
trap finish EXIT

HERE=()
[[ -n ${BROKERS:-} ]] || HERE+=(kafka)
[[ -n ${REDIS:-} ]] || HERE+=(redis)
if ((${#HERE[@]})); then
  ENGINES=$SCRATCH/engines
  say "starting ${HERE[*]} here"
  localstack/engines up --folder "$ENGINES" --only "$(IFS=,; echo "${HERE[*]}")" --any-ports >"$SCRATCH/env"
  REDIS=${REDIS:-$(sed -n 's/^export TALLY_REDIS=//p' "$SCRATCH/env")}
fi
if [[ -z ${BROKERS:-} ]]; then
  BROKERS=$(sed -n 's/^export TALLY_BROKERS=//p' "$SCRATCH/env")
  TOPIC=likes
else
  TOPIC=${TOPIC:-smoke-likes}
fi

say "creating the tables $PREFIX.."
aws cloudformation deploy --stack-name "${PREFIX}data" --template-file infra/data.yaml \
  --parameter-overrides "TablePrefix=$PREFIX" PointInTimeRecovery=false DeletionProtection=false --no-fail-on-empty-changeset >/dev/null

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
start() {
  local name=$1 admin
  shift
  admin=$(free)
  "$TALLY_TEST_BIN/$name" --table-prefix "$PREFIX" --admin-listen "127.0.0.1:$admin" "$@" 2>"$SCRATCH/$name.log" &
  PIDS+=($!)
  ADMINS+=("$name 127.0.0.1:$admin")
}
ADMINS=()
read -ra KAFKA <<<"--brokers $BROKERS ${FLAGS:-}"
API=127.0.0.1:$(free)
start tally-change-streamer --redis "$REDIS"
start tally-consumer "${KAFKA[@]}" --topic "$TOPIC"
start tally-count-api "${KAFKA[@]}" --topic "$TOPIC" --listen "$API" --write-rate 0 --redis "$REDIS"
for admin in "${ADMINS[@]}"; do
  name=${admin% *}
  for ((tries = 0; ; tries++)); do
    curl -fs "http://${admin#* }/readyz" >/dev/null && break
    ((tries < 240)) || { echo "$name is not ready: $(curl -s "http://${admin#* }/readyz")" >&2; exit 1; }
    sleep 0.5
  done
  say "$name is ready"
done

say "5,000 likes and unlikes from a file, and one over HTTP"
python3 - >"$SCRATCH/likes.ndjson" <<'PY'
import json, random
random.seed(7)
for n in range(5000):
    action = "unlike" if random.random() < 0.2 else "like"
    print(json.dumps({"post_id": f"post-{n % 20}", "user_id": f"user-{random.randrange(300)}", "action": action, "ts": 1600000000000 + n}))
PY
"$TALLY_TEST_BIN/tally-consumer" "${KAFKA[@]}" --topic "$TOPIC" import "$SCRATCH/likes.ndjson" --rate 1000
curl -fsS -X PUT "http://$API/v1/posts/post-0/likes/by-hand" >/dev/null
echo '{"post_id":"post-0","user_id":"by-hand","action":"like"}' >>"$SCRATCH/likes.ndjson"

say "comparing every count and every user"
docs/examples/verify "http://$API" "$SCRATCH/likes.ndjson" --wait 120

say "a recount of everything, which has to find nothing"
"$TALLY_TEST_BIN/tally-batch-recount" --table-prefix "$PREFIX" --admin-listen off

say "PASSED"
