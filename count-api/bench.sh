#!/usr/bin/env bash
# Measures the API under wrk: a hot GET, GETs uniform over the posts, and batches of 50.
#
#   count-api/bench.sh [seconds a measurement, default 6] [connections, default 64] [posts, default 100000] [rounds, default 5]
#
# Each post has one like. For each commit an emulated DynamoDB, a consumer and a change-streamer with a Redis of its own count the likes
# of one topic in Apache Kafka, and go on running. Only reads put counts into Redis: before anything is measured, each API is asked for
# every post until Redis has every count, and then the counts are kept from expiring. So all counts that are not in the API's memory are
# read from Redis, none from the table. The servers with all they need have one core, and the load has the other, unless FLOATING is
# set; the API writes an event for every request into a file. webdis, where it is installed, answers the hot GET from the same Redis
# in the same rounds. Each rate stands beside what redis-benchmark reads from this Redis. KINDS chooses among hot, uniform and batch.
# Needs wrk, redis-server, redis-cli, redis-benchmark, taskset and two cores.
set -euo pipefail
ROUNDS=${ROUNDS:-${4:-5}}
. "$(dirname "$0")/../e2e/bench-lib.sh"
SECONDS_EACH=${1:-6} CONNECTIONS=${2:-64} POSTS=${3:-100000}
for program in wrk redis-server redis-cli redis-benchmark taskset; do need $program; done
[ "$(nproc)" -ge 2 ] || fail "two cores are needed: one for the load, one for the servers"
programs
read -ra KINDS <<<"${KINDS:-hot uniform batch}"
declare -A PORT=()
NAME+=([webdis]=webdis) FLOATING=${FLOATING:-}
ulimit -n "$(ulimit -Hn)"

# Starts an API and what it reads, and counts the likes.
serve() {
  local commit=$1 admin kept=0 looks
  PORT[redis-$commit]=$(free_ports 1)
  start "redis-$commit" redis-server --port "${PORT[redis-$commit]}" --bind 127.0.0.1 --save "" --appendonly no
  store "$commit"
  new_changes kafka "changes-$commit" 12
  start "change-streamer-$commit" "${BIN[$commit]}/tally-change-streamer" --redis "redis://127.0.0.1:${PORT[redis-$commit]}" \
    --brokers "$BROKERS" --changes-topic "changes-$commit"
  admin=127.0.0.1:$(free_ports 1)
  start "consumer-$commit" "${BIN[$commit]}/tally-consumer" --brokers "$BROKERS" --group "bench-$commit" --admin-listen "$admin"
  until_taken "consumer-$commit" "$admin" "$POSTS"
  until_counted "$POSTS" "$AWS_ENDPOINT_URL"
  PORT[$commit]=$(free_ports 1) admin=127.0.0.1:$(free_ports 1) API=http://127.0.0.1:${PORT[$commit]}
  start "$commit" "${BIN[$commit]}/tally-count-api" --log-format json --listen "127.0.0.1:${PORT[$commit]}" --admin-listen "$admin" \
    --redis "redis://127.0.0.1:${PORT[redis-$commit]}"
  await "$commit" ready "$admin"
  for ((looks = 1; looks <= 5 && kept < POSTS; looks++)); do
    verify "$SCRATCH/likes.csv" "$commit-$looks"
    # An answer does not wait until its counts are in Redis.
    sleep 1
    # What begins with `0:` is no count: the API is about to write one there. A key that ends with `}` is a partition's standing.
    kept=$(redis-cli -p "${PORT[redis-$commit]}" eval "
      local kept = 0
      for _, key in ipairs(redis.call('KEYS', '*')) do
        if string.sub(key, -1) ~= '}' and string.sub(redis.call('GET', key), 1, 2) ~= '0:' then
          redis.call('PERSIST', key)
          kept = kept + 1
        end
      end
      return kept" 0)
  done
  ((kept >= POSTS)) || fail "${NAME[$commit]}: every post was read $((looks - 1)) times, and Redis has $kept counts of $POSTS"
}

cat >"$SCRATCH/wrk.lua" <<'LUA'
local posts, what = tonumber(os.getenv("POSTS")), os.getenv("WHAT")
function init() math.randomseed(os.time()) end
function request()
    if what == "uniform" then return wrk.format("GET", "/v1/posts/p" .. math.random(posts) .. "/likes") end
    local ids = {}
    for n = 1, 50 do ids[n] = "p" .. math.random(posts) end
    local body = '{"post_ids":["' .. table.concat(ids, '","') .. '"]}'
    return wrk.format("POST", "/v1/likes:batchGet", {["content-type"] = "application/json"}, body)
end
LUA
# measure COMMIT WHAT: notes requests a second, p99 in milliseconds, and CPU of a request in microseconds.
measure() {
  local before rate p99 all bad path='' script=()
  case $2 in
    hot) path=/v1/posts/p1/likes ;;
    webdis) path=/GET/p1 ;;
    *) script=(-s "$SCRATCH/wrk.lua") ;;
  esac
  before=$(core_seconds "$1")
  POSTS=$POSTS WHAT=$2 taskset -c "${FLOATING:+1,}0" wrk -t 1 -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --latency "${script[@]}" \
    "http://127.0.0.1:${PORT[$1]}$path" >"$SCRATCH/wrk.out" 2>&1 || fail "$(tail "$SCRATCH/wrk.out")"
  read -r rate p99 all bad < <(wrk_figures <"$SCRATCH/wrk.out")
  ((all > 0 && bad == 0)) || fail "$1, $2: $all answers, $bad of them not 2xx"
  note "$2-rate-$1" "$rate"
  note "$2-p99-$1" "$p99"
  note "$2-cpu-$1" "$(awk -v took="$(core_seconds "$1")" -v before="$before" -v all="$all" 'BEGIN { printf "%.1f", (took - before) * 1e6 / all }')"
  say "${NAME[$1]}, $2: $rate requests/s, p99 $p99 ms"
}

engines kafka --only kafka --topics likes:12,likes.dlq:1
seq "$POSTS" | awk 'BEGIN { print "post_id,user_id,action,ts" } { printf "p%d,user-1,like,15000%08d\n", $1, $1 }' >"$SCRATCH/likes.csv"
import "$SCRATCH/likes.csv" likes
for commit in "${COMMITS[@]}"; do serve "$commit"; done
PEERS=()
if command -v webdis >/dev/null; then
  PORT[webdis]=$(free_ports 1) PEERS=(webdis)
  redis-cli -p "${PORT[redis-this]}" set p1 1 >/dev/null
  cat >"$SCRATCH/webdis.json" <<JSON
{"redis_host": "127.0.0.1", "redis_port": ${PORT[redis-this]}, "http_host": "127.0.0.1", "http_port": ${PORT[webdis]}, "verbosity": 0,
 "threads": $((${#FLOATING} ? 2 : 1)), "daemonize": false, "logfile": "$SCRATCH/webdis.requests"}
JSON
  start webdis webdis "$SCRATCH/webdis.json"
  await webdis curl -fs -o /dev/null "http://127.0.0.1:${PORT[webdis]}/GET/p1"
fi
[[ -n $FLOATING ]] || for pid in "${PIDS[@]}"; do taskset -a -c -p 1 "$pid" >/dev/null; done
for ((round = 1; round <= ROUNDS; round++)); do
  for what in "${KINDS[@]}"; do
    for commit in "${COMMITS[@]}"; do measure "$commit" "$what"; done
  done
  for peer in "${PEERS[@]}"; do measure "$peer" "$peer"; done
done
heading "$CONNECTIONS connections, medians of $ROUNDS rounds of $SECONDS_EACH s"
for what in "${KINDS[@]}"; do
  row "$what: requests/s" "$what-rate"
  row "$what: p99, ms" "$what-p99"
  row "$what: CPU of a request, us" "$what-cpu"
done
for peer in "${PEERS[@]}"; do
  echo "webdis: $(median webdis-rate-webdis) requests/s, p99 $(median webdis-p99-webdis) ms; this / webdis:" \
    "$(ratio "$(median hot-rate-this)" "$(median webdis-rate-webdis)")"
done
echo "redis-benchmark: $(taskset -c 0 redis-benchmark -p "${PORT[redis-this]}" -t get -n 500000 -c 64 -q | tr '\r' '\n' |
  grep 'per second' | tail -n 1)"
footer "$POSTS posts"
