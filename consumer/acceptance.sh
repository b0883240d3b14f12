#!/bin/sh
# The process tests at the sizes that a release is held to, one after the other: about half an hour on two cores.
# Arguments go to the test binary: a part of a test's name runs that test alone.
set -eu
cd "$(dirname "$0")/.."
export TALLY_TEST_EVENTS="${TALLY_TEST_EVENTS:-200000}"
export TALLY_TEST_KILLS="${TALLY_TEST_KILLS:-20}"
export TALLY_TEST_STOPS="${TALLY_TEST_STOPS:-100}"
export TALLY_TEST_OUTAGE="${TALLY_TEST_OUTAGE:-60}"
export TALLY_TEST_THROTTLE="${TALLY_TEST_THROTTLE:-30}"
exec cargo test --release -p tally-consumer --test consumer -- --include-ignored --skip component:: --test-threads=1 --nocapture "$@"
