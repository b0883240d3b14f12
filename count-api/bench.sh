#!/usr/bin/env bash
# The API under wrk, beside webdis, another way to a number in Redis over HTTP: a hot GET, GETs uniform over the posts, and
# batches of 50.
#
#   count-api/bench.sh [seconds a measurement, default 6] [connections, default 64] [posts, default 100000] [rounds, default 5]
#
# Needs wrk, redis-server, webdis and two cores. First capped: the load has one core, and each server with all it needs
# (webdis and redis-server; the API, redis-server and its tables) has 30 % of another, so that it is the server that is
# measured: on a whole core, it is the load's own core that is full first. That takes a writable cpu control group, and is
# left out where there is none. Then pinned, without the cap, and floating over all cores, where the load takes from the
# servers. Rounds alternate between the servers and the medians are printed, since a shared machine drifts.
# The API runs as the image ships it (profile dist): an event for every request, into a file. redis-benchmark is the limit.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-6} connections=${2:-64} posts=${3:-100000} rounds=${4:-5}
target=${CARGO_TARGET_DIR:-target}/dist
for tool in wrk redis-server redis-cli redis-benchmark webdis taskset; do
    command -v $tool > /dev/null || { echo "$tool is not installed: there is nothing to measure with, or beside"; exit 1; }
done
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed: one for the load, one for the servers"; exit 1; }
[ -n "${BUILT:-}" ] || cargo build --quiet --profile dist -p tally-count-api --bins --example stage

work=$(mktemp -d)
pids=()
end() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    pids=()
}
trap 'end; [ -z "$group" ] || rmdir "$group"; rm -rf "$work"' EXIT

# A control group with 30 % of a core, if one can be had.
group=""
cap() {
    local cpu=/sys/fs/cgroup name=tally-bench-$$
    if [ -e $cpu/cgroup.controllers ]; then
        mkdir $cpu/$name && group=$cpu/$name && echo '3000 10000' > "$group/cpu.max"
    else
        mkdir $cpu/cpu/$name && group=$cpu/cpu/$name && echo 10000 > "$group/cpu.cfs_period_us" && echo 3000 > "$group/cpu.cfs_quota_us"
    fi 2> /dev/null
}
capped() { echo $BASHPID > "$group/cgroup.procs" && exec taskset -c 1 "$@"; }
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
up() { for _ in $(seq 600); do curl -sf -o /dev/null "$1" && return; sleep 0.1; done; echo "$1 does not answer"; exit 1; }

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

begin() { # threads of webdis, a command before each server
    local threads=$1
    shift
    redis=$(port)
    "$@" redis-server --port "$redis" --bind 127.0.0.1 --save "" --appendonly no > /dev/null &
    pids+=($!)
    until redis-cli -p "$redis" ping > /dev/null 2>&1; do sleep 0.1; done
    # What the streamer would have written.
    seq "$posts" | awk '{ print "SET likes:p" $1 " 1:1:" $1 ":1:1700000000000" }' | redis-cli -p "$redis" --pipe > /dev/null

    local tables admin
    tables=$(port) api=$(port) admin=$(port)
    export AWS_ENDPOINT_URL=http://127.0.0.1:$tables AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
    "$@" "$target/examples/stage" "$tables" 100 2> "$work/stage.log" &
    pids+=($!)
    until grep -q posts "$work/stage.log"; do sleep 0.1; done
    "$@" "$target/tally-count-api" --listen "127.0.0.1:$api" --admin-listen "127.0.0.1:$admin" \
        --redis "redis://127.0.0.1:$redis" --log-format json ${API_ARGS:-} 2> "$work/api.log" &
    pids+=($!)
    up "http://127.0.0.1:$admin/readyz"

    webdis=$(port)
    cat > "$work/webdis.json" << CONFIG
{"redis_host": "127.0.0.1", "redis_port": $redis, "http_host": "127.0.0.1", "http_port": $webdis, "threads": $threads,
 "pool_size": 20, "daemonize": false, "websockets": false, "verbosity": 0, "logfile": "$work/webdis.log"}
CONFIG
    "$@" webdis "$work/webdis.json" > /dev/null 2>&1 &
    pids+=($!)
    up "http://127.0.0.1:$webdis/PING"
}

measure() { # server what command..: requests a second, p99, answers that are not 2xx
    local url path="" script=()
    case $1 in
        api) url=http://127.0.0.1:$api ;;
        webdis) url=http://127.0.0.1:$webdis ;;
    esac
    case $1-$2 in
        api-hot) url+=/v1/posts/p1/likes ;;
        webdis-hot) url+=/GET/likes:p1 ;;
        api-uniform) path=/v1/posts/#/likes ;;
        webdis-uniform) path=/GET/likes:# ;;
        webdis-batch) path=/MGET/# ;;
    esac
    [ "$2" = hot ] || script=(-s "$work/$2.lua")
    shift 2
    POSTS=$posts PATH_OF=$path "$@" wrk -t "$wrk_threads" -c "$connections" -d "${seconds}s" --latency "${script[@]}" "$url" |
        awk '/99%/ { p99 = $2 } /Requests\/sec/ { rate = $2 } /Non-2xx/ { bad = $NF }
             END { if (p99 ~ /us$/) ms = p99 / 1000; else if (p99 ~ /ms$/) ms = p99 + 0; else ms = p99 * 1000
                   printf "%d %.2f %d\n", rate, ms, bad }'
}

middle() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

compare() { # what command..
    local what=$1 server rates=()
    shift
    : > "$work/api" > "$work/webdis"
    for _ in $(seq "$rounds"); do
        for server in api webdis; do measure "$server" "$what" "$@" >> "$work/$server"; done
    done
    for server in api webdis; do
        rates+=("$(cut -d ' ' -f 1 "$work/$server" | middle)")
        printf '  %-8s %-7s %8s requests/s   p99 %7s ms   not 2xx %s\n' "$what" "$server" "${rates[-1]}" \
            "$(cut -d ' ' -f 2 "$work/$server" | middle)" "$(cut -d ' ' -f 3 "$work/$server" | sort -n | tail -1)"
    done
    awk -v a="${rates[0]}" -v b="${rates[1]}" 'BEGIN { printf "  %-8s %-7s %8.2f\n", "", "ratio", a / b }'
}

limit() { "$@" redis-benchmark -p "$redis" -t get -n 500000 -c "$connections" -q | tr '\r' '\n' | grep 'per second' | tail -1; }

for way in ${WAYS:-capped pinned floating}; do
    case $way in
        capped)
            cap || { echo "capped: left out, no cpu control group can be made here"; continue; }
            load=(taskset -c 0) serve=(capped) wrk_threads=1
            ;;
        pinned) load=(taskset -c 0) serve=(taskset -c 1) wrk_threads=1 ;;
        floating) load=() serve=() wrk_threads=2 ;;
    esac
    echo "$way, $connections connections, medians of $rounds rounds of $seconds s, load average $(cut -d ' ' -f 1 /proc/loadavg)"
    begin "$wrk_threads" "${serve[@]}"
    for what in ${WHAT:-hot uniform batch}; do compare "$what" "${load[@]}"; done
    echo "  redis-benchmark $(limit "${load[@]}")"
    end
done
