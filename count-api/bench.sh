#!/usr/bin/env bash
# Measures the API under wrk, beside webdis, another way to read a number in Redis over HTTP: a hot GET, GETs uniform over the posts, and
# batches of 50.
#
#   count-api/bench.sh [seconds a measurement, default 6] [connections, default 64] [posts, default 100000] [rounds, default 5]
#
# Each post has one like. For each commit an emulated DynamoDB, a consumer and a change-streamer with a Redis of its own count the likes
# of one topic in Apache Kafka, and go on running. Only reads put counts into Redis: before anything is measured, each API is asked for
# every post until Redis has every count, and then the counts are kept from expiring. So all counts that are not in the API's memory are
# read from Redis, none from the table. webdis reads a Redis of its own with as many keys. One measurement is wrk's for the given seconds;
# the servers take turns in each round, and medians are printed.
#
# First pinned: the servers with all they need have one core, and the load has the other. Where cpu control groups can be made, the load
# and the servers have one each, which outweighs whatever else the machine does; no server then gains from being two processes if a third
# wants its core. The cores that both used are printed: a ratio says too little once the load's own core is full. Then floating over all
# cores, where the load takes from the servers. The API writes an event for every request into a file; webdis logs errors alone.
# redis-benchmark shows the limit. WAYS and WHAT choose among the measurements, and API_ARGS are more flags of the API. Needs wrk, webdis,
# redis-server, redis-cli, redis-benchmark, taskset and two cores.
set -euo pipefail
ROUNDS=${ROUNDS:-${4:-5}}
. "$(dirname "$0")/../e2e/bench-lib.sh"
SECONDS_EACH=${1:-6} CONNECTIONS=${2:-64} POSTS=${3:-100000}
for program in wrk redis-server redis-cli redis-benchmark webdis taskset; do need $program; done
[ "$(nproc)" -ge 2 ] || fail "two cores are needed: one for the load, one for the servers"
programs
read -ra API_ARGS <<<"${API_ARGS:-}"
declare -A PORT=() STORE_OF=()

# Control groups of the load and of the servers, of the greatest weight there is, if they can be had.
groups=""
at_end() { [ -z "$groups" ] || rmdir "$groups"-*; }
outweigh() {
  local root=/sys/fs/cgroup file=cpu.weight most=10000 side
  [ -e $root/cgroup.controllers ] || root+=/cpu file=cpu.shares most=262144
  for side in load servers; do
    mkdir $root/tally-bench-$$-$side && groups=$root/tally-bench-$$ && echo $most >"$groups-$side/$file" && continue
    rmdir $root/tally-bench-$$-*
    groups="" && return 1
  done 2>/dev/null
}
# on SIDE CORES: sets what to write before a command for it to run there.
on() {
  there=(taskset -c "$2")
  # shellcheck disable=SC2016 # The other shell expands them.
  [ -z "$groups" ] || there=(sh -c 'echo $$ >"$0" && exec "$@"' "$groups-$1/cgroup.procs" "${there[@]}")
}
# place SIDE CORES: moves every process that runs there, with its threads.
place() {
  local pid
  for pid in "${PIDS[@]}"; do
    taskset -a -c -p "$2" "$pid" >/dev/null
    [ -z "$groups" ] || echo "$pid" >"$groups-$1/cgroup.procs"
  done
}

# redis NAME: starts a Redis, as process redis-NAME.
redis() {
  PORT[redis-$1]=$(free_ports 1)
  start "redis-$1" redis-server --port "${PORT[redis-$1]}" --bind 127.0.0.1 --save "" --appendonly no
  await "redis-$1" pinged "$1"
}
pinged() { redis-cli -p "${PORT[redis-$1]}" ping >/dev/null 2>&1; }
# Starts what the API of a commit reads, and counts the likes.
fill() {
  local commit=$1 admin
  admin=127.0.0.1:$(free_ports 1)
  redis "$commit"
  store "$commit"
  STORE_OF[$commit]=$AWS_ENDPOINT_URL
  new_changes "$commit" kafka "changes-$commit" 12
  changes_flags "$commit" tally-change-streamer "changes-$commit"
  start "change-streamer-$commit" "${BIN[$commit]}/tally-change-streamer" --redis "redis://127.0.0.1:${PORT[redis-$commit]}" \
    "${FLAGS_OF_CHANGES[@]}"
  start "consumer-$commit" "${BIN[$commit]}/tally-consumer" --brokers "$BROKERS" --group "bench-$commit" --admin-listen "$admin"
  until_taken "consumer-$commit" "$admin" "$POSTS"
  until_counted "$POSTS" "$AWS_ENDPOINT_URL"
}
# warm COMMIT WAY: asks the API for every post until Redis has every count, and keeps them from expiring. What begins with
# `0:` is no count: an API is about to write one there. A key that ends with `}` is the standing of a partition.
warm() {
  local kept=0 looks
  API=http://127.0.0.1:${PORT[$1]}
  for ((looks = 1; looks <= 5 && kept < POSTS; looks++)); do
    verify "$SCRATCH/likes.csv" "$1-$2-$looks"
    # An answer does not wait until its counts are in Redis.
    sleep 1
    kept=$(redis-cli -p "${PORT[redis-$1]}" eval "
      local kept = 0
      for _, key in ipairs(redis.call('KEYS', '*')) do
        if string.sub(key, -1) ~= '}' and string.sub(redis.call('GET', key), 1, 2) ~= '0:' then
          redis.call('PERSIST', key)
          kept = kept + 1
        end
      end
      return kept" 0)
    [[ $kept =~ ^[0-9]+$ ]] || fail "redis: $kept"
  done
  ((kept >= POSTS)) || fail "${NAME[$1]}: every post was read $((looks - 1)) times, and Redis has $kept counts of $POSTS"
  echo "${NAME[$1]}: Redis has $kept counts of $POSTS posts" >&2
}
# Starts the API of each commit and webdis, with $1 threads, behind what `there` says, and fills the APIs' Redis.
serve() {
  local commit admin
  for commit in "${COMMITS[@]}"; do
    changes_flags "$commit" tally-count-api "changes-$commit"
    PORT[$commit]=$(free_ports 1) admin=127.0.0.1:$(free_ports 1)
    AWS_ENDPOINT_URL=${STORE_OF[$commit]} start "$commit" "${there[@]}" "${BIN[$commit]}/tally-count-api" --log-format json \
      --listen "127.0.0.1:${PORT[$commit]}" --admin-listen "$admin" --redis "redis://127.0.0.1:${PORT[redis-$commit]}" \
      "${FLAGS_OF_CHANGES[@]}" "${API_ARGS[@]}"
    await "$commit" ready "$admin"
    warm "$commit" "$way"
  done
  PORT[webdis]=$(free_ports 1)
  cat >"$SCRATCH/webdis.json" <<CONFIG
{"redis_host": "127.0.0.1", "redis_port": ${PORT[redis-webdis]}, "http_host": "127.0.0.1", "http_port": ${PORT[webdis]}, "threads": $1,
 "pool_size": 20, "daemonize": false, "websockets": false, "verbosity": 0, "logfile": "$SCRATCH/webdis.txt"}
CONFIG
  start webdis "${there[@]}" webdis "$SCRATCH/webdis.json"
  await webdis curl -sf -o /dev/null "http://127.0.0.1:${PORT[webdis]}/PING"
}

cat >"$SCRATCH/uniform.lua" <<'LUA'
local posts, path = tonumber(os.getenv("POSTS")), os.getenv("PATH_OF")
function init() math.randomseed(os.time()) end
function request() return wrk.format("GET", (path:gsub("#", "p" .. math.random(posts)))) end
LUA
cat >"$SCRATCH/batch.lua" <<'LUA'
local posts, many = tonumber(os.getenv("POSTS")), os.getenv("PATH_OF")
function request()
    local ids = {}
    for n = 1, 50 do ids[n] = "p" .. math.random(posts) end
    if many ~= "" then return wrk.format("GET", (many:gsub("#", "likes:" .. table.concat(ids, "/likes:")))) end
    local body = '{"post_ids":["' .. table.concat(ids, '","') .. '"]}'
    return wrk.format("POST", "/v1/likes:batchGet", {["content-type"] = "application/json"}, body)
end
LUA
# measure SERVER WHAT COMMAND..: notes requests a second, p99, CPU of a request, cores of the server and of the load, answers not 2xx.
measure() {
  local server=$1 what=$2 url=http://127.0.0.1:${PORT[$1]} path="" script=() before after rate p99 all bad cpu cores
  case $server-$what in
    webdis-hot) url+=/GET/likes:p1 ;;
    webdis-uniform) path=/GET/likes:# ;;
    webdis-batch) path=/MGET/# ;;
    *-hot) url+=/v1/posts/p1/likes ;;
    *-uniform) path=/v1/posts/#/likes ;;
  esac
  [ "$what" = hot ] || script=(-s "$SCRATCH/$what.lua")
  before="$(core_seconds "$server") $(core_seconds "redis-$server")"
  TIMEFORMAT='%U %S'
  { time (POSTS=$POSTS PATH_OF=$path "${@:3}" wrk -t "$threads" -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --latency "${script[@]}" "$url" \
    >"$SCRATCH/wrk.out" 2>&1); } 2>"$SCRATCH/wrk.time" || fail "$(tail "$SCRATCH/wrk.out")"
  after="$(core_seconds "$server") $(core_seconds "redis-$server")"
  read -r rate p99 all bad < <(wrk_figures <"$SCRATCH/wrk.out")
  ((all > 0)) || fail "$server, $what: no answers: $(tail -n 3 "$SCRATCH/wrk.out")"
  note "$way-$what-rate-$server" "$rate"
  note "$way-$what-p99-$server" "$p99"
  note "$way-$what-bad-$server" "$bad"
  read -r cpu cores < <(awk -v all="$all" -v seconds="$SECONDS_EACH" '{
    took = $3 + $4 - $1 - $2; printf "%.2f %.2f\n", took * 1e6 / all, took / seconds }' <<<"$before $after")
  note "$way-$what-cpu-$server" "$cpu"
  note "$way-$what-cores-$server" "$cores"
  note "$way-$what-load-$server" "$(awk -v seconds="$SECONDS_EACH" '{ printf "%.2f", ($1 + $2) / seconds }' "$SCRATCH/wrk.time")"
}
# compared WHAT SERVER OTHER: the ratio of two servers' medians.
compared() {
  local of rates=() cpus=()
  for of in "$2" "$3"; do rates+=("$(median "$way-$1-rate-$of")") cpus+=("$(median "$way-$1-cpu-$of")"); done
  echo "| $1 | ${NAME[$2]} / ${NAME[$3]} | $(ratio "${rates[@]}") | | $(ratio "${cpus[@]}") | | | |"
}

outweigh || echo "no control groups can be made here: what else runs is measured as well"
engines kafka --only kafka --topics likes:12,likes.dlq:1
seq "$POSTS" | awk 'BEGIN { print "post_id,user_id,action,ts" } { printf "p%d,user-1,like,15000%08d\n", $1, $1 }' >"$SCRATCH/likes.csv"
import "$SCRATCH/likes.csv" likes
for commit in "${COMMITS[@]}"; do fill "$commit"; done
redis webdis
# Values as long as those of the API.
seq "$POSTS" | awk '{ print "SET likes:p" $1 " 1:1:1:1:1700000000000" }' | redis-cli -p "${PORT[redis-webdis]}" --pipe >/dev/null
NAME[webdis]=webdis
for way in ${WAYS:-pinned floating}; do
  case $way in
    pinned) load=0 servers=1 threads=1 ;;
    floating) load=0-1 servers=0-1 threads=2 ;;
    *) fail "there is no way $way" ;;
  esac
  place servers "$servers"
  on servers "$servers"
  serve "$threads"
  on load "$load"
  echo
  echo "$way, $CONNECTIONS connections, medians of $ROUNDS rounds of $SECONDS_EACH s, load average $(cut -d ' ' -f 1 /proc/loadavg)"
  echo "| what | server | requests/s | p99, ms | CPU of a request, us | cores of the server | cores of the load | not 2xx |"
  echo "|---|---|---|---|---|---|---|---|"
  for what in ${WHAT:-hot uniform batch}; do
    for ((round = 1; round <= ROUNDS; round++)); do
      for server in "${COMMITS[@]}" webdis; do measure "$server" "$what" "${there[@]}"; done
    done
    for server in "${COMMITS[@]}" webdis; do
      line="| $what | ${NAME[$server]} |"
      for figure in rate p99 cpu cores load; do line+=" $(median "$way-$what-$figure-$server") |"; done
      echo "$line $(sort -n "$SCRATCH/$way-$what-bad-$server.noted" | tail -n 1) |"
    done
    [ -z "$BEFORE" ] || compared "$what" this before
    compared "$what" this webdis
  done
  echo "redis-benchmark: $("${there[@]}" redis-benchmark -p "${PORT[redis-webdis]}" -t get -n 500000 -c "$CONNECTIONS" -q | tr '\r' '\n' |
    grep 'per second' | tail -n 1)"
  stop "${COMMITS[@]}" webdis
done
footer "$POSTS posts"
