#!/usr/bin/env bash
# The API under wrk, beside webdis, another way to a number in Redis over HTTP: a hot GET, GETs uniform over the posts, and
# batches of 50.
#
#   count-api/bench.sh [seconds a measurement, default 6] [connections, default 64] [posts, default 100000] [rounds, default 5]
#
# Needs wrk, redis-server, webdis and two cores. First pinned: each server with all it needs (webdis and redis-server; the
# API, redis-server and its tables) has one core, and the load the other. Where cpu control groups can be made, the load and
# the servers have one each that outweighs whatever else the machine does: no server then gains by being two processes where
# a third wants its core. What of their cores both used is printed: a ratio says too little once the load's own is full. Then
# floating over all cores, where the load takes from the servers. Rounds alternate between the servers and the medians are
# printed, since a shared machine drifts.
# The API runs as the image ships it (profile dist): an event for every request, into a file. webdis logs errors alone.
# redis-benchmark is the limit. WAYS and WHAT choose among the measurements, API_ARGS are more arguments of the API, and with
# BUILT nothing is built.
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
trap 'end; [ -z "$groups" ] || rmdir "$groups"-*; rm -rf "$work"' EXIT

# Control groups of the load and of the servers, of the greatest weight there is, if they can be had.
groups=""
outweigh() {
    local root=/sys/fs/cgroup file=cpu.weight most=10000 side
    [ -e $root/cgroup.controllers ] || root+=/cpu file=cpu.shares most=262144
    for side in load servers; do
        mkdir $root/tally-bench-$$-$side && groups=$root/tally-bench-$$ && echo $most > "$groups-$side/$file" && continue
        rmdir $root/tally-bench-$$-*
        groups="" && return 1
    done 2> /dev/null
}
on() { # side cores: sets what to write before a command for it to run there
    there=(taskset -c "$2")
    [ -z "$groups" ] || there=(sh -c 'echo $$ > "$0" && exec "$@"' "$groups-$1/cgroup.procs" "${there[@]}")
}
TIMEFORMAT='load %U %S'
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
    redis_pid=$! pids+=($!)
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
    api_pid=$! pids+=($!)
    up "http://127.0.0.1:$admin/readyz"

    webdis=$(port)
    cat > "$work/webdis.json" << CONFIG
{"redis_host": "127.0.0.1", "redis_port": $redis, "http_host": "127.0.0.1", "http_port": $webdis, "threads": $threads,
 "pool_size": 20, "daemonize": false, "websockets": false, "verbosity": 0, "logfile": "$work/webdis.log"}
CONFIG
    "$@" webdis "$work/webdis.json" > /dev/null 2>&1 &
    webdis_pid=$! pids+=($!)
    up "http://127.0.0.1:$webdis/PING"
}

used() { awk '{ all += $14 + $15 } END { print all }' $(printf '/proc/%s/stat ' "$@"); } # pids..: their CPU, in ticks

measure() { # server what command..: requests a second, p99, answers that are not 2xx, CPU of each, cores of server and load
    local url path="" script=() of=("$redis_pid") before answered
    case $1 in
        api) url=http://127.0.0.1:$api of+=("$api_pid") ;;
        webdis) url=http://127.0.0.1:$webdis of+=("$webdis_pid") ;;
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
    before=$(used "${of[@]}")
    answered=$( { time (POSTS=$posts PATH_OF=$path "$@" wrk -t "$wrk_threads" -c "$connections" -d "${seconds}s" \
        --latency "${script[@]}" "$url"); } 2>&1 |
        awk '/99%/ { p99 = $2 } /requests in/ { all = $1 } /Requests\/sec/ { rate = $2 } /Non-2xx/ { bad = $NF }
             /^load/ { load = $2 + $3 }
             END { if (p99 ~ /us$/) ms = p99 / 1000; else if (p99 ~ /ms$/) ms = p99 + 0; else ms = p99 * 1000
                   print int(rate), ms, bad + 0, all, load }')
    echo "$answered $before $(used "${of[@]}") $seconds" |
        awk '{ cpu = ($7 - $6) / 100; printf "%d %.2f %d %.2f %.2f %.2f\n", $1, $2, $3, cpu * 1e6 / $4, cpu / $8, $5 / $8 }'
}

column() { cut -d ' ' -f "$1" "$work/$2" | sort -n | sed -n "$(((rounds + 1) / 2))p"; } # its median

compare() { # what command..
    local what=$1 server rates=()
    shift
    : > "$work/api" > "$work/webdis"
    for _ in $(seq "$rounds"); do
        for server in api webdis; do measure "$server" "$what" "$@" >> "$work/$server"; done
    done
    for server in api webdis; do
        rates+=("$(column 1 "$server")")
        printf '  %-8s %-7s %8s requests/s   p99 %7s ms   CPU %6s us each   of %s cores, load %s   not 2xx %s\n' \
            "$what" "$server" "${rates[-1]}" "$(column 2 "$server")" "$(column 4 "$server")" "$(column 5 "$server")" \
            "$(column 6 "$server")" "$(cut -d ' ' -f 3 "$work/$server" | sort -n | tail -1)"
    done
    awk -v a="${rates[0]}" -v b="${rates[1]}" 'BEGIN { printf "  %-8s %-7s %8.2f\n", "", "ratio", a / b }'
}

limit() { "$@" redis-benchmark -p "$redis" -t get -n 500000 -c "$connections" -q | tr '\r' '\n' | grep 'per second' | tail -1; }

outweigh || echo "no control groups can be made here: what else runs is measured as well"
for way in ${WAYS:-pinned floating}; do
    case $way in
        pinned) load=0 servers=1 wrk_threads=1 ;;
        floating) load=0-1 servers=0-1 wrk_threads=2 ;;
    esac
    echo "$way, $connections connections, medians of $rounds rounds of $seconds s, load average $(cut -d ' ' -f 1 /proc/loadavg)"
    on servers "$servers"
    begin "$wrk_threads" "${there[@]}"
    on load "$load"
    for what in ${WHAT:-hot uniform batch}; do compare "$what" "${there[@]}"; done
    echo "  redis-benchmark $(limit "${there[@]}")"
    end
done
