#!/usr/bin/env bash
# Everything the change-streamer promises, at full size and optimised. Takes about a quarter of an hour on two cores, the
# build not included; every part ends by itself. `change-streamer/acceptance.sh laws` runs one part.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

crate=(-p tally-change-streamer --release)

# Relay and fold in one process, under paused time.
laws() {
    timeout 1800 cargo test "${crate[@]}" --lib --test streamer -- --include-ignored --skip processes::
}

# Real processes: 20 times kill -9, a minute of SIGSTOP with a takeover, a minute idle.
processes() {
    TALLY_TEST_KILLS=20 TALLY_TEST_STOPPED=60 TALLY_TEST_IDLE=60 \
        timeout 1800 cargo test "${crate[@]}" --test streamer -- \
        --include-ignored --nocapture --test-threads 1 processes::
}

for part in "${@:-laws processes}"; do
    for name in $part; do
        printf '\n== %s\n' "$name"
        "$name"
    done
done
