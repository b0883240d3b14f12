#!/bin/sh
# Every acceptance run of the recount in its full size. Takes about an hour on two cores; ends what it starts.
# A step can be named: ./acceptance.sh whole | kills | memory | audit | staleness | faults
set -eu
cd "$(dirname "$0")"

whole() { # 1 M rows in a hot post, 100,000 small posts, 1,000 writes a second of the test's clock, shards splitting
    RECOUNT_HOT_ROWS="${RECOUNT_HOT_ROWS:-1000000}" RECOUNT_POSTS="${RECOUNT_POSTS:-100000}" \
        RECOUNT_WRITES="${RECOUNT_WRITES:-1000}" \
        cargo test --release -p tally-batch-recount --test recount a_hot_post_and_many_small_ones -- --include-ignored --nocapture
}

kills() { # kill -9 at 50 random points, two processes at once
    RECOUNT_KILLS="${RECOUNT_KILLS:-50}" \
        cargo test --release -p tally-batch-recount --test recount processes:: -- --include-ignored --test-threads 1 --nocapture
}

memory() { # what a recount's own process holds, from 100,000 to 2,000,000 rows
    RECOUNT_MEMORY_ROWS="${RECOUNT_MEMORY_ROWS:-100000,2000000}" \
        cargo test --release -p tally-batch-recount --test recount what_a_recount_holds -- --include-ignored --nocapture
}

audit() { # against a bare segmented scan by the SDK
    AUDIT_ROWS="${AUDIT_ROWS:-8000000}" cargo bench -p tally-batch-recount --bench audit
}

staleness() { # the hot post's p99, with and without a recount, in 5 alternated pairs
    cargo bench -p tally-batch-recount --bench staleness
}

faults() { # ghosts, dropped replies, streamers and recounts that die, under paused time
    cargo test --release -p tally-batch-recount --test recount faults
}

for step in ${*:-faults kills memory staleness audit whole}; do
    echo "== $step"
    "$step"
done
