#!/usr/bin/env bash
# The API under wrk, beside other ways to a number in Redis over HTTP, on the same cores in one run:
# a hot GET, GETs uniform over the posts, and batches of 50.
#
#   count-api/bench.sh [seconds a measurement, default 8] [connections, default 64] [posts, default 100000]
#
# Needs wrk and redis-server; webdis is measured where it is installed.
# Rounds alternate between the servers and the median of three is printed, since a shared machine drifts.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-8} connections=${2:-64} posts=${3:-100000}
target=${CARGO_TARGET_DIR:-target}/release
for tool in wrk redis-server redis-cli; do
    command -v $tool > /dev/null || { echo "$tool is not installed"; exit 1; }
done
cargo build --quiet --release -p tally-count-api --bins --example stage

work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
up() { for _ in $(seq 600); do curl -sf -o /dev/null "$1" && return; sleep 0.1; done; echo "$1 does not answer"; exit 1; }

redis=$(port)
redis-server --port "$redis" --bind 127.0.0.1 --save "" --appendonly no > /dev/null &
pids+=($!)
until redis-cli -p "$redis" ping > /dev/null 2>&1; do sleep 0.1; done
# What the streamer would have written.
seq "$posts" | awk '{ print "SET likes:p" $1 " 1:1:" $1 ":1:1700000000000" }' | redis-cli -p "$redis" --pipe > /dev/null

tables=$(port) api=$(port) admin=$(port)
export AWS_ENDPOINT_URL=http://127.0.0.1:$tables AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
"$target/examples/stage" "$tables" 100 2> "$work/stage.log" &
pids+=($!)
until grep -q posts "$work/stage.log"; do sleep 0.1; done
# As shipped: an event for every request, into a file.
"$target/tally-count-api" --listen "127.0.0.1:$api" --admin-listen "127.0.0.1:$admin" --redis "redis://127.0.0.1:$redis" \
    --log-format json 2> "$work/api.log" &
pids+=($!)
up "http://127.0.0.1:$admin/readyz"

peers=()
if command -v webdis > /dev/null; then
    webdis=$(port)
    cat > "$work/webdis.json" << CONFIG
{"redis_host": "127.0.0.1", "redis_port": $redis, "http_host": "127.0.0.1", "http_port": $webdis, "threads": 2, "pool_size": 20,
 "daemonize": false, "websockets": false, "verbosity": 0, "logfile": "$work/webdis.log"}
CONFIG
    webdis "$work/webdis.json" > /dev/null 2>&1 &
    pids+=($!)
    up "http://127.0.0.1:$webdis/PING"
    peers+=(webdis)
fi

cat > "$work/uniform.lua" << 'LUA'
local posts, path = tonumber(os.getenv("POSTS")), os.getenv("PATH_OF")
function init() math.randomseed(os.time()) end
function request() return wrk.format("GET", (path:gsub("#", "p" .. math.random(posts)))) end
LUA
cat > "$work/batch.lua" << 'LUA'
local posts, many = tonumber(os.getenv("POSTS")), os.getenv("PATH_OF")
function request()
    local ids = {}
    for n = 1, 50 do ids[n] = "p" .. math.random(posts) end
    if many ~= "" then return wrk.format("GET", (many:gsub("#", "likes:" .. table.concat(ids, "/likes:")))) end
    local body = '{"post_ids":["' .. table.concat(ids, '","') .. '"]}'
    return wrk.format("POST", "/v1/likes:batchGet", {["content-type"] = "application/json"}, body)
end
LUA

measure() { # server what: requests a second, p99, answers that are not 2xx
    local url script=() path
    case $1 in
        api) url=http://127.0.0.1:$api ;;
        webdis) url=http://127.0.0.1:$webdis ;;
    esac
    case $1-$2 in
        api-hot) url+=/v1/posts/p1/likes ;;
        webdis-hot) url+=/GET/likes:p1 ;;
        api-uniform) path=/v1/posts/#/likes ;;
        webdis-uniform) path=/GET/likes:# ;;
        api-batch) path="" ;;
        webdis-batch) path=/MGET/# ;;
    esac
    case $2 in
        uniform) script=(-s "$work/uniform.lua") ;;
        batch) script=(-s "$work/batch.lua") ;;
    esac
    POSTS=$posts PATH_OF=${path:-} wrk -t 2 -c "$connections" -d "${seconds}s" --latency "${script[@]}" "$url" |
        awk '/99%/ { p99 = $2 } /Requests\/sec/ { rate = $2 } /Non-2xx/ { bad = $NF } END { print int(rate), p99, bad + 0 }'
}

for what in hot uniform batch; do
    for server in api "${peers[@]}"; do : > "$work/$what-$server"; done
    for _ in 1 2 3; do
        for server in api "${peers[@]}"; do measure "$server" "$what" >> "$work/$what-$server"; done
    done
    for server in api "${peers[@]}"; do
        read -r rate p99 bad < <(sort -n "$work/$what-$server" | sed -n 2p)
        printf '%-8s %-8s %8s requests/s   p99 %-9s not 2xx %s\n' "$what" "$server" "$rate" "$p99" "$bad"
    done
done
command -v redis-benchmark > /dev/null &&
    redis-benchmark -p "$redis" -t get -n 500000 -c "$connections" --threads 2 -q | tr '\r' '\n' | grep 'per second' | tail -1
