# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # Scripts read what functions set, and set `round`.
# The functions that the bench scripts share, over those of localstack/lib.sh. A script sources this file first.
#
# Every bench reads these variables:
#   TALLY_TEST_BIN  the folder with the release programs of this commit. If it is not set they are built in target/release
#   BEFORE          the folder with the release programs of another commit. With it every figure is measured for both
#                   commits, which take turns in each round and get the same events, partitions, stream shards, users and tables
#   ROUNDS          how often everything is measured (3, unless the script says otherwise). The tables show medians
# Both commits must know the flags that are used here. Every other variable of the programs, such as TALLY_BROKERS, is unset.
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  echo
  sed -n '/^# Every bench/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
BEFORE=${BEFORE:+$(cd "$BEFORE" && pwd)}
. "$(dirname "${BASH_SOURCE[0]}")/../localstack/lib.sh"
ROUNDS=${ROUNDS:-3}
COMMITS=()
declare -A BIN=() NAME=([this]='this commit' [before]=before)
# `localstack/engines env` exports some of these, and the programs would read them.
for variable in "${!TALLY_@}" "${!AWS_ENDPOINT_URL@}"; do
  [[ $variable == TALLY_TEST_* || $variable == TALLY_BENCH_* || $variable == TALLY_REDIS_SERVER ]] || unset "$variable"
done
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_REGION=us-east-1 TALLY_ADMIN_LISTEN=off

say() { echo "round $round: $*" >&2; }
need python3
need curl

# programs [CARGO WORDS..]: sets COMMITS and, for each, BIN. Builds this commit's programs, or what the words say.
programs() {
  if [[ -z $TALLY_TEST_BIN ]]; then
    (($#)) || set -- build --release --workspace --bins --example bare
    cargo "$@" --locked
    TALLY_TEST_BIN=$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)
  fi
  BIN[this]=$TALLY_TEST_BIN COMMITS=(this)
  if [[ -n $BEFORE ]]; then BIN[before]=$BEFORE COMMITS+=(before); fi
}
# What gives a local stack the latencies of the real store.
LATENCY="--store-latency 20ms..40ms --store-batch-latency 8ms..25ms --store-call-latency 3ms..8ms"

# new_topic ENGINES TOPIC PARTITIONS [FLAG..]: an empty topic, in place of the one that had its name.
new_topic() {
  local topics=(localstack/engines topics --folder "$SCRATCH/$1") log=$SCRATCH/topics.log
  "${topics[@]}" --delete --if-exists --topic="$2" >"$log" 2>&1 || fail "$(tail "$log")"
  "${topics[@]}" --create --topic="$2" --partitions="$3" "${@:4}" >"$log" 2>&1 || fail "$(tail "$log")"
}
# new_changes ENGINES TOPIC PARTITIONS: an empty topic of changes.
new_changes() { new_topic "$@" --config=message.timestamp.type=LogAppendTime --config=retention.ms=97200000; }

# likes EVENTS POSTS USERS FILE: events about random posts, the same for the same numbers. With 0 users each event is a like of
# another user; otherwise the users are random, and three of ten events are unlikes.
likes() { lib likes "$1" "$2" "$3" >"$4"; }
# import FILE TOPIC: sends a file of events to a topic with Kafka's own producer.
import() {
  lib keyed "$1" | localstack/engines produce --folder "${ENGINES[-1]}" --topic="$2" --batch-size=1000 --property=parse.key=true \
    --producer-property=linger.ms=5 >/dev/null 2>"$SCRATCH/import.log" || fail "$(tail "$SCRATCH/import.log")"
}

# store COMMIT [FLAG..]: starts an emulated DynamoDB with the tables, as process store-COMMIT. Sets AWS_ENDPOINT_URL to its address.
store() {
  local port
  port=$(free_ports 1)
  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  start "store-$1" "${BIN[$1]}/tally-emulator" --port "$port" "${@:2}"
  await "store-$1" curl -s -o /dev/null "$AWS_ENDPOINT_URL"
  lib tables "$AWS_ENDPOINT_URL"
}
# own_load COMMIT RATE SECONDS [FLAG..]: a local stack under its own load. Every row and every count is compared at the end.
own_load() {
  env -u AWS_ENDPOINT_URL "${BIN[$1]}/tally-localstack" --api-port 0 --kafka-port 0 --dynamodb-port 0 --rate "$2" --duration "$3s" \
    --verify "${@:4}" >"$SCRATCH/load.out" 2>"$SCRATCH/load.log" || fail "$(tail -n 20 "$SCRATCH/load.out" "$SCRATCH/load.log")"
}
# p50 and p99 in milliseconds of the counts in the last ten seconds of the last own_load.
staleness() {
  sed -nE "s/.*staleness +p50 ([0-9]+) ms p99 ([0-9]+) ms.*/\1 \2/p" "$SCRATCH/load.out" | tail -n 1 | grep . ||
    fail "the local stack printed no staleness"
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
# until_counted LIKES ENDPOINT [PREFIX]: waits until the counts come to so many likes. A scan of the counts costs the store as much as
# many writes, so the next one comes after half of the time that is left at the pace since BEGAN. Sets SCANS, and ENDED to the end of
# the last scan.
until_counted() {
  local sum=0
  SCANS=0 HIGHEST=-1
  while :; do
    sum=$(lib counted "$2" "${3:-}like_counts") SCANS=$((SCANS + 1))
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
# The lowest and the highest of a figure.
spread() { LC_ALL=C sort -n "$SCRATCH/$1.noted" | sed -n '1h; ${H; x; s/\n/ to /p}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (a + 0 && b + 0) printf "%.2f", a / b; else printf "-" }'; }
# heading WHAT [COLUMN..]: the head of a table of rows.
heading() {
  local line="| $1 | this commit |${BEFORE:+ before | this / before |}" column
  for column in "${@:2}"; do line+=" $column |"; done
  echo "$line"
  sed -E 's/[^|]+/---/g' <<<"$line"
}
# row LABEL FIGURE: the medians of FIGURE-this and, if another commit is measured, of FIGURE-before.
row() {
  local this before
  this=$(median "$2-this") before=$(median "$2-before")
  echo "| $1 | $this |${BEFORE:+ $before | $(ratio "$this" "$before") |}"
}
footer() { echo "$(nproc) cores; $*"; }
