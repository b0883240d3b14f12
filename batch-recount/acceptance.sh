#!/bin/sh
# Every acceptance run of the recount in its full size; ends what it starts.
# A step can be named: ./acceptance.sh whole | kills | memory
set -eu
cd "$(dirname "$0")"

whole() { # 1 M rows in a hot post, 100,000 small posts, 1,000 writes a second of the test's clock, shards splitting
    RECOUNT_HOT_ROWS="${RECOUNT_HOT_ROWS:-1000000}" RECOUNT_POSTS="${RECOUNT_POSTS:-100000}" \
        RECOUNT_WRITES="${RECOUNT_WRITES:-1000}" \
        cargo test --release -p tally-batch-recount --test recount a_hot_post_and_many_small_ones -- --include-ignored --nocapture
}

kills() { # kill -9 at 50 random points
    RECOUNT_KILLS="${RECOUNT_KILLS:-50}" \
        cargo test --release -p tally-batch-recount --test recount processes:: -- --include-ignored --test-threads 1 --nocapture
}

memory() { # what a recount's own process holds, from 100,000 to 2,000,000 rows
    RECOUNT_MEMORY_ROWS="${RECOUNT_MEMORY_ROWS:-100000,2000000}" \
        cargo test --release -p tally-batch-recount --test recount what_a_recount_holds -- --include-ignored --nocapture
}

for step in ${*:-kills memory whole}; do
    echo "== $step"
    "$step"
done
