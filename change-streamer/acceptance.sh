#!/usr/bin/env bash
# Everything the change-streamer promises, at full size and optimised. Takes about half an hour on two cores, the build not
# included; every part ends by itself. `change-streamer/acceptance.sh storm` runs one part.
set -euo pipefail
cd "$(dirname "$0")/.."

crate=(-p tally-change-streamer --release)

# 300,000 changes over 20,000 posts, a third of them of one: 8 shards that split, faults, double workers, 20 crashes.
storm() {
    TALLY_TEST_CHANGES=300000 TALLY_TEST_POSTS=20000 \
        timeout 3600 cargo test "${crate[@]}" --test streamer -- --include-ignored --nocapture --test-threads 1 acceptance::
}

# A million changes with two streamers and no leases on every shard. Only when it is named.
million() {
    TALLY_TEST_CHANGES=1000000 TALLY_TEST_POSTS=20000 \
        timeout 7200 cargo test "${crate[@]}" --test streamer -- --include-ignored --nocapture acceptance::two_streamers
}

# Every other law of the streamer, with ten times the seeds.
laws() {
    TALLY_TEST_SEEDS=240 timeout 1800 cargo test "${crate[@]}" --lib --test streamer -- \
        --skip acceptance:: --skip changes:: --skip processes::
}

# Real processes: 20 times kill -9, a minute of SIGSTOP with a takeover, a minute idle, the feed over a Kafka.
processes() {
    TALLY_TEST_KILLS=20 TALLY_TEST_STOPPED=60 TALLY_TEST_IDLE=60 \
        timeout 1800 cargo test "${crate[@]}" --test streamer -- \
        --include-ignored --nocapture --test-threads 1 processes:: --skip changes::
}

# The ledger of changes over an Apache Kafka of its own: 300,000 changes, 20 kills, 2 zombies, no leases, one streamer without
# the ledger refused. The topic, read with the reader's filter, equals the stream, each record once.
changes() {
    local kafka brokers
    kafka=$(mktemp -d)
    trap 'localstack/engines down --folder "$kafka" >/dev/null 2>&1; rm -rf "$kafka"' RETURN
    brokers=$(localstack/engines up --folder "$kafka" --only kafka --any-ports --topics changes:12 |
        sed -n 's/^export TALLY_BROKERS=//p')
    TALLY_TEST_BROKERS=$brokers TALLY_TEST_CHANGES=300000 TALLY_TEST_KILLS=20 \
        timeout 3600 cargo test "${crate[@]}" --test streamer -- --include-ignored --nocapture --test-threads 1 processes::changes::
    TALLY_TEST_SEEDS=240 timeout 3600 cargo test "${crate[@]}" --test streamer -- \
        --nocapture --test-threads 1 changes:: --skip processes::
}

# Records a second, beside the loop people write first.
bench() {
    timeout 1800 cargo bench -p tally-change-streamer --bench fold
}

for part in "${@:-storm laws processes changes bench}"; do
    for name in $part; do
        printf '\n== %s\n' "$name"
        "$name"
    done
done
