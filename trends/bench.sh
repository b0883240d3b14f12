#!/usr/bin/env bash
# How fast lists are made, beside what is simpler and beside Redis. Each way has a core of its own, they take turns, and the
# median of three is told. Needs taskset, python3 and redis-server; a Redis of its own runs on a free port of the loopback.
#
#   trends/bench.sh [fold|keys|replay|start|redis ..]      all of them where none is named
#
# TALLY_BENCH_KEYS and TALLY_BENCH_CHANGES are other sizes.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in taskset python3 redis-server redis-cli; do
    command -v "$tool" >/dev/null || { echo "$0: $tool is missing" >&2; exit 69; }
done

lists() {
    taskset -c 1 "$bench" --bench "$@"
}

beside_redis() {
    local port folder server
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    folder=$(mktemp -d)
    taskset -c 0 redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no --dir "$folder" >/dev/null &
    server=$!
    trap 'kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
    until redis-cli -p "$port" ping >/dev/null 2>&1; do
        kill -0 "$server" || exit 1
        sleep 0.1
    done
    redis-cli -p "$port" info server | grep redis_version
    lists "redis=$port"
    kill "$server"
    wait "$server" || true
    trap - EXIT
    rm -rf "$folder"
}

cargo bench -p tally-trends --bench lists --no-run
bench=$(cargo bench -p tally-trends --bench lists --no-run --message-format json 2>/dev/null |
    python3 -c 'import json, sys
print([a["executable"] for a in map(json.loads, sys.stdin) if a.get("executable") and a["target"]["name"] == "lists"][-1])')

for part in "${@:-fold keys replay start redis}"; do
    for name in $part; do
        printf '\n== %s\n' "$name"
        case $name in
            redis) beside_redis ;;
            *) lists "$name" ;;
        esac
    done
done
