# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # Scripts read what functions set, and set `round`.
# The functions that the bench scripts share. A script sources this file first. It answers --help with the header comment
# of the script, goes to the root of the repository, and stops every process that it has started when the script ends.
#
# Every bench reads these variables:
#   TALLY_TEST_BIN  the folder with the release programs of this commit. If it is not set they are built in target/release
#   BEFORE          the folder with the release programs of another commit. With it every figure is measured for both
#                   commits, which take turns in each round and get the same events, partitions, stream shards and users
#   BEFORE_TABLES   the adapters/src/dynamodb/tables.json of that commit, if its tables differ from those of this commit
#   ROUNDS          how often everything is measured (3, unless the script says otherwise). The tables show medians
# The two commits may have different flags. The latency flags, `--no-trends` and the topic of changes are given only to a
# commit whose `--help` lists them; each must know all others. Every other variable of the programs, such as
# TALLY_BROKERS, is unset.
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  echo
  sed -n '/^# Every bench/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
TALLY_TEST_BIN=${TALLY_TEST_BIN:+$(cd "$TALLY_TEST_BIN" && pwd)}
BEFORE=${BEFORE:+$(cd "$BEFORE" && pwd)}
BEFORE_TABLES=${BEFORE_TABLES:+$(realpath "$BEFORE_TABLES")}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
ROUNDS=${ROUNDS:-3}
SCRATCH=$(mktemp -d)
COMMITS=() ENGINES=() STARTED=()
declare -A BIN=() HELP=() LATENCY=() PIDS=() NAME=([this]='this commit' [before]=before)
# What a topic of changes is created with. The ledger wants 27 hours.
CHANGES_CONFIG=(--config=message.timestamp.type=LogAppendTime --config=retention.ms=97200000)
# `localstack/engines env` exports some of these, and the programs would read them.
for variable in "${!TALLY_@}" "${!AWS_ENDPOINT_URL@}"; do
  [[ $variable == TALLY_TEST_* || $variable == TALLY_BENCH_* || $variable == TALLY_REDIS_SERVER ]] || unset "$variable"
done
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_REGION=us-east-1 TALLY_ADMIN_LISTEN=off

fail() {
  echo "$0: $*" >&2
  exit 1
}
# need PROGRAM..: fails if one is not installed.
need() {
  local program
  for program in "$@"; do command -v "$program" >/dev/null || fail "$program is not installed"; done
}
say() { echo "round $round: $*" >&2; }
need python3 curl
# The numbers of $1 ports of the loopback that are free.
free_ports() {
  python3 -c 'import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(socket.getsockname()[1] for socket in held))' "$1"
}

# programs [CARGO WORDS..]: sets COMMITS and, for each, BIN. Builds this commit's programs, or what the words say.
programs() {
  if [[ -z $TALLY_TEST_BIN ]]; then
    (($#)) || set -- build --release --workspace --bins
    cargo "$@" --locked
    TALLY_TEST_BIN=$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)
  fi
  BIN[this]=$TALLY_TEST_BIN COMMITS=(this)
  if [[ -n $BEFORE ]]; then BIN[before]=$BEFORE COMMITS+=(before); fi
}
# knows COMMIT PROGRAM FLAG: whether the program's --help lists the flag.
knows() {
  local key=$1/$2
  [[ -n ${HELP[$key]:-} ]] || HELP[$key]=$("${BIN[$1]}/$2" --help) || fail "${BIN[$1]}/$2 --help failed"
  grep -qE -- "^(      |  -., )$3( |$)" <<<"${HELP[$key]}"
}
# Sets LATENCY of each commit to the flags that give its local stack the latencies of the real store, and prints them.
latencies() {
  local commit flag span missing
  for commit in "${COMMITS[@]}"; do
    LATENCY[$commit]='' missing=
    while read -r flag span; do
      if knows "$commit" tally-localstack "$flag"; then LATENCY[$commit]+=" $flag $span"; else missing+=" $flag"; fi
    done <<<$'--store-latency 20ms..40ms\n--store-batch-latency 8ms..25ms\n--store-call-latency 3ms..8ms'
    echo "${NAME[$commit]}:${LATENCY[$commit]}${missing:+ (no$missing)}"
  done
}

# start PROCESS COMMAND..: runs a command in the background. Its output goes to PROCESS.out and PROCESS.log.
start() {
  local process=$1
  shift
  "$@" >"$SCRATCH/$process.out" 2>"$SCRATCH/$process.log" &
  PIDS[$process]=$! STARTED=("$process" "${STARTED[@]}")
}
# stop [PROCESS..]: stops these processes one after the other, or all of them, the last one that was started first. So a
# service finds the store that it still writes to.
stop() {
  local process
  (($#)) || set -- "${STARTED[@]}"
  for process in "$@"; do
    [[ -n ${PIDS[$process]:-} ]] || continue
    kill "${PIDS[$process]}" 2>/dev/null || true
    wait "${PIDS[$process]}" 2>/dev/null || true
    unset "PIDS[$process]"
  done
}
# alive [PROCESS..]: fails with the end of its log if one of these processes, or of all, has ended.
alive() {
  local process
  (($#)) || set -- "${!PIDS[@]}"
  for process in "$@"; do
    kill -0 "${PIDS[$process]}" 2>/dev/null || fail "$process ended: $(tail -n 5 "$SCRATCH/$process.log")"
  done
}
# alive_or_done PROCESS: fails if the process has failed. Forgets it if it has ended well.
alive_or_done() {
  if [[ -z ${PIDS[$1]:-} ]] || kill -0 "${PIDS[$1]}" 2>/dev/null; then return; fi
  wait "${PIDS[$1]}" || fail "$1 failed: $(tail -n 5 "$SCRATCH/$1.log")"
  unset "PIDS[$1]"
}
# await PROCESS COMMAND..: repeats a command until it succeeds, for ten minutes and while the process runs.
await() {
  local process=$1 deadline=$((SECONDS + 600))
  shift
  until "$@"; do
    alive "$process"
    ((SECONDS < deadline)) || fail "waited ten minutes for: $*"
    sleep 0.05
  done
}
# A script that has more to end defines at_end.
finish() {
  local folder
  stop
  if declare -F at_end >/dev/null; then at_end || true; fi
  for folder in "${ENGINES[@]}"; do localstack/engines down --folder "$folder" 2>/dev/null || true; done
  rm -rf "$SCRATCH"
}
trap finish EXIT

# engines NAME FLAG..: starts engines in a folder of this name. Sets BROKERS and REDIS.
engines() {
  ENGINES+=("$SCRATCH/$1")
  localstack/engines up --folder "$SCRATCH/$1" --any-ports "${@:2}" >"$SCRATCH/$1.env" 2>"$SCRATCH/$1.log" ||
    fail "$(tail "$SCRATCH/$1.log")"
  BROKERS=$(sed -n 's/^export TALLY_BROKERS=//p' "$SCRATCH/$1.env") REDIS=$(sed -n 's/^export TALLY_REDIS=//p' "$SCRATCH/$1.env")
}
# new_topic ENGINES TOPIC PARTITIONS [FLAG..]: an empty topic, in place of the one that had its name.
new_topic() {
  local topics=(localstack/engines topics --folder "$SCRATCH/$1") log=$SCRATCH/topics.log
  "${topics[@]}" --delete --if-exists --topic="$2" >"$log" 2>&1 || fail "$(tail "$log")"
  "${topics[@]}" --create --topic="$2" --partitions="$3" "${@:4}" >"$log" 2>&1 || fail "$(tail "$log")"
}
# needs_changes COMMIT: whether its change-streamer always has a topic of changes: the flag has a default, or is required,
# which the usage or the flag's own text says.
needs_changes() {
  knows "$1" tally-change-streamer --changes-topic && awk '
    /^Usage:.*--changes-topic/ { found = 1 }
    /^      --|^  -., --/ { ours = /^      --changes-topic( |$)/ }
    ours && /\[default: |required/ { found = 1 }
    END { exit !found }' <<<"${HELP[$1/tally-change-streamer]}"
}
# new_changes COMMIT ENGINES TOPIC PARTITIONS: an empty topic of changes, if the commit needs one.
new_changes() {
  ! needs_changes "$1" || new_topic "$2" "$3" "$4" "${CHANGES_CONFIG[@]}"
}
# changes_flags COMMIT PROGRAM TOPIC: sets FLAGS_OF_CHANGES to what names the topic of changes, if the commit and the program need it.
changes_flags() {
  FLAGS_OF_CHANGES=()
  ! needs_changes "$1" || ! knows "$1" "$2" --changes-topic || FLAGS_OF_CHANGES=(--brokers "$BROKERS" --changes-topic "$3")
}

# likes EVENTS POSTS USERS FILE: events about random posts, the same for the same numbers. With 0 users each event is a like of
# another user; otherwise the users are random, and three of ten events are unlikes.
likes() {
  python3 - "$1" "$2" "$3" >"$4" <<'PY'
import random, sys
events, posts, users = map(int, sys.argv[1:])
random.seed(posts)
print("post_id,user_id,action,ts")
for n in range(events):
    post, user, action = random.randrange(posts), n, "like"
    if users:
        user, action = random.randrange(users), "unlike" if random.random() < 0.3 else "like"
    print(f"post-{post},user-{user},{action},{1500000000000 + n}")
PY
}
# import FILE TOPIC: sends a file of events to a topic, with this commit's program.
import() {
  rm -f "$1.progress" "$1.rejected"
  "${BIN[this]}/tally-consumer" --brokers "$BROKERS" --topic "$2" import "$1" --rate 10000000 >/dev/null 2>"$SCRATCH/import.log" ||
    fail "$(tail "$SCRATCH/import.log")"
}

# store COMMIT [FLAG..]: starts an emulated DynamoDB with the tables, as process store-COMMIT. Sets AWS_ENDPOINT_URL to its address.
store() {
  local port tables=adapters/src/dynamodb/tables.json
  [[ $1 != before || -z $BEFORE_TABLES ]] || tables=$BEFORE_TABLES
  port=$(free_ports 1)
  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  start "store-$1" "${BIN[$1]}/tally-emulator" --port "$port" "${@:2}"
  await "store-$1" curl -s -o /dev/null "$AWS_ENDPOINT_URL"
  python3 - "$AWS_ENDPOINT_URL" "$tables" <<'PY'
import json, sys, urllib.request
endpoint, tables = sys.argv[1:]
for table in json.load(open(tables)):
    table["TableName"] = table["TableName"].replace("${TablePrefix}", "")
    table.pop("TimeToLiveSpecification", None)
    if "StreamSpecification" in table:
        table["StreamSpecification"]["StreamEnabled"] = True
    headers = {"x-amz-target": "DynamoDB_20120810.CreateTable", "authorization": "Credential=any/20260101/us-east-1/dynamodb/aws4_request"}
    urllib.request.urlopen(urllib.request.Request(endpoint, json.dumps(table).encode(), headers)).read()
PY
}
# stack COMMIT FLAG..: starts a local stack as the process `stack`. Sets API, ADMIN and STORE to its addresses.
stack() {
  local ports
  # Not from a pipe: the ports are held until python3 has ended.
  read -ra ports <<<"$(free_ports 3)"
  API=http://127.0.0.1:${ports[0]} ADMIN=127.0.0.1:${ports[1]} STORE=http://127.0.0.1:${ports[2]}
  start stack env -u AWS_ENDPOINT_URL "${BIN[$1]}/tally-localstack" --api-port "${ports[0]}" --admin-listen "$ADMIN" \
    --dynamodb-port "${ports[2]}" --kafka-port 0 "${@:2}"
  await stack shows_metrics "$ADMIN"
}
shows_metrics() { curl -fs -o /dev/null "http://$1/metrics"; }
ready() { curl -fs -o /dev/null "http://$1/readyz"; }
# own_load COMMIT RATE SECONDS [FLAG..]: a local stack under its own load. Every row and every count is compared at the end.
own_load() {
  env -u AWS_ENDPOINT_URL "${BIN[$1]}/tally-localstack" --api-port 0 --kafka-port 0 --dynamodb-port 0 --rate "$2" --duration "$3s" \
    --verify "${@:4}" >"$SCRATCH/load.out" 2>"$SCRATCH/load.log" || fail "$(tail -n 20 "$SCRATCH/load.out" "$SCRATCH/load.log")"
}
# staleness recent|overall: p50 and p99 in milliseconds of the counts in the last own_load: of its last ten seconds, or of all of it.
staleness() {
  local comma=
  [[ $1 == recent ]] || comma=,
  sed -nE "s/.*staleness +p50 ([0-9]+) ms$comma p99 ([0-9]+) ms.*/\1 \2/p" "$SCRATCH/load.out" | tail -n 1 | grep . ||
    fail "the local stack printed no staleness"
}

# metric ADMIN NAME [LABEL]: the sum of a metric over its labels, or over those with this one. Fails if there is none.
metric() {
  curl -fsS "http://$1/metrics" | awk -v name="$2" -v label="${3:-}" '
    { split($1, part, "{") }
    part[1] == name && (label == "" || index($0, label)) { sum += $NF; found = 1 }
    END { if (!found) exit 1; printf "%.0f\n", sum }' || fail "there is no metric $2 at http://$1/metrics"
}
# moved NUMBER: fails if this number has not grown for two minutes.
moved() {
  if (($1 > HIGHEST)); then HIGHEST=$1 GREW=$SECONDS; fi
  ((SECONDS - GREW < 120)) || fail "no progress for two minutes, at $1"
}
# until_taken PROCESS ADMIN EVENTS: waits until the consumer there has taken so many records, and looks every $LOOK seconds (0.1).
# Sets BEGAN to the time of the first look that finds any record taken, FROM to their number, and ENDED to the time of the last.
until_taken() {
  local taken
  BEGAN='' HIGHEST=-1
  await "$1" shows_metrics "$2"
  while sleep "${LOOK:-0.1}"; do
    alive "$1"
    taken=$(metric "$2" tally_consumer_records_total)
    moved "$taken"
    ENDED=${EPOCHREALTIME/[.,]/}
    if [[ -z $BEGAN ]] && ((taken > 0)); then BEGAN=$ENDED FROM=$taken; fi
    ((taken < $3)) || break
  done
}
# counted ENDPOINT TABLE: the sum of all counts.
counted() {
  python3 - "$@" <<'PY'
import json, sys, urllib.request
endpoint, table = sys.argv[1:]
total, start = 0, None
while True:
    body = {"TableName": table, "ProjectionExpression": "likes", "ConsistentRead": True}
    body |= {"ExclusiveStartKey": start} if start else {}
    headers = {"x-amz-target": "DynamoDB_20120810.Scan", "authorization": "Credential=any/20260101/us-east-1/dynamodb/aws4_request"}
    page = json.load(urllib.request.urlopen(urllib.request.Request(endpoint, json.dumps(body).encode(), headers)))
    total += sum(int(item["likes"]["N"]) for item in page["Items"] if "likes" in item)
    start = page.get("LastEvaluatedKey")
    if not start:
        break
print(total)
PY
}
# until_counted LIKES ENDPOINT [PREFIX]: waits until the counts come to so many likes. A scan of the counts costs the store as much as
# many writes, so the next one comes after half of the time that is left at the pace since BEGAN. Sets SCANS, and ENDED to the end of
# the last scan.
until_counted() {
  local sum=0
  SCANS=0 HIGHEST=-1
  while :; do
    sum=$(counted "$2" "${3:-}like_counts") SCANS=$((SCANS + 1))
    ENDED=${EPOCHREALTIME/[.,]/}
    ((sum < $1)) || break
    moved "$sum"
    alive
    sleep "$(awk -v left=$(($1 - sum)) -v sum="$sum" -v us=$((ENDED - BEGAN)) 'BEGIN {
      wait = sum ? left / sum * us / 2e6 : 1; print (wait < 0.1 ? 0.1 : (wait > 5 ? 5 : wait)) }')"
  done
  ((sum == $1)) || fail "the counts come to $sum likes, and $1 were sent"
}
# verify FILE NAME: compares every count with a file of events, the first time that it is called with this name.
verify() {
  [[ ! -e $SCRATCH/$2.verified ]] || return 0
  docs/examples/verify "$API" "$1" --counts-only --wait 180 >"$SCRATCH/verified" || fail "$(tail "$SCRATCH/verified")"
  touch "$SCRATCH/$2.verified"
}

# a_second COUNT: sets A_SECOND to so many a second between BEGAN and ENDED.
a_second() {
  ((ENDED > BEGAN)) || fail "nothing was left to measure after the first look: more events are needed"
  A_SECOND=$(($1 * 1000000 / (ENDED - BEGAN)))
}
# Seconds of a core that a process has taken so far.
core_seconds() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hz }' "/proc/${PIDS[$1]}/stat"; }
# From what wrk prints: requests a second, the 99th percentile in milliseconds, requests in all, answers that are not 2xx.
wrk_figures() {
  awk '/^ +99%/ { p99 = $2 } /requests in/ { all = $1 } /^Requests\/sec/ { rate = $2 } /Non-2xx/ { bad = $NF }
    END { print int(rate), (p99 ~ /us$/ ? p99 / 1000 : (p99 ~ /ms$/ ? p99 + 0 : p99 * 1000)), all + 0, bad + 0 }'
}

# note FIGURE NUMBER: one number of a round.
note() { echo "$2" >>"$SCRATCH/$1.noted"; }
# The median of a figure, or - if there is none.
median() {
  [[ -e $SCRATCH/$1.noted ]] || { echo -; return; }
  LC_ALL=C sort -n "$SCRATCH/$1.noted" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (a + 0 && b + 0) printf "%.2f", a / b; else printf "-" }'; }
# heading WHAT: the head of a table of rows.
heading() { printf '| %s | this commit | before | this / before |\n|---|---|---|---|\n' "$1"; }
# row LABEL FIGURE: the medians of FIGURE-this and FIGURE-before.
row() {
  local this before
  this=$(median "$2-this") before=$(median "$2-before")
  echo "| $1 | $this | $before | $(ratio "$this" "$before") |"
}
footer() { echo "$(nproc) cores; this commit: ${BIN[this]}${BEFORE:+; before: $BEFORE}; $*"; }
