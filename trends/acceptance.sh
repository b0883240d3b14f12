#!/usr/bin/env bash
# What tally-trends promises, at full size and optimised; every part ends by itself. `trends/acceptance.sh limit` runs one part.
set -euo pipefail
cd "$(dirname "$0")/.."

# Ten million keys for real and what one takes; ten times more keys than there may be: memory, and the bound of every list
# against all there was. Takes about 1.5 GB and some minutes.
limit() {
    timeout 3600 cargo bench -p tally-trends --bench lists -- limit
}

# Every law of the lists, with a hundred times the schedules of what is forgotten.
laws() {
    TALLY_TEST_SCHEDULES=30000 timeout 3600 cargo test --release -p tally-trends --test trends lists::
}

for part in "${@:-laws limit}"; do
    for name in $part; do
        printf '\n== %s\n' "$name"
        "$name"
    done
done
