#!/usr/bin/env bash
# Measures how fast lists are made, beside simpler ways and beside Redis: trends/bench.sh [fold|keys|replay|start|redis ..]
#
# Without a name all parts are measured. The bench program `lists` runs on core 1, and takes the median of three rounds in which the ways
# that it compares take turns. Redis runs on core 0, at a free port of the loopback. What the programs print is shown as it comes, with
# their ratios and aims; the table at the end has every rate. Needs taskset, python3, redis-server and redis-cli.
#
# Both folders of programs need the bench program: `cargo bench -p tally-trends --bench lists --no-run` leaves it in deps/ of the folder.
# ROUNDS is 1 if it is not set. TALLY_BENCH_KEYS and TALLY_BENCH_CHANGES are other sizes.
set -euo pipefail
ROUNDS=${ROUNDS:-1}
. "$(dirname "$0")/../e2e/bench-lib.sh"
read -ra PARTS <<<"${*:-fold keys replay start redis}"
for program in taskset redis-server redis-cli; do need $program; done
programs bench -p tally-trends --bench lists --no-run
declare -A BENCH=()
for commit in "${COMMITS[@]}"; do
  for file in "${BIN[$commit]}"/deps/lists-*; do
    [[ ! -x $file || $file -ot ${BENCH[$commit]:-$file} ]] || BENCH[$commit]=$file
  done
  [[ -n ${BENCH[$commit]:-} ]] || fail "no bench program ${BIN[$commit]}/deps/lists-*: see --help"
done
if [[ " ${PARTS[*]} " == *" redis "* ]]; then
  port=$(free_ports 1)
  start redis taskset -c 0 redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no --dir "$SCRATCH"
  answers() { redis-cli -p "$port" ping >/dev/null 2>&1; }
  await redis answers
  redis-cli -p "$port" info server | grep redis_version
fi

ORDER=()
declare -A MET=()
for ((round = 1; round <= ROUNDS; round++)); do
  for part in "${PARTS[@]}"; do
    for commit in "${COMMITS[@]}"; do
      printf '\n== %s, %s\n' "$part" "${NAME[$commit]}"
      taskset -c 1 "${BENCH[$commit]}" --bench "${part/#redis/redis=${port:-}}" | tee "$SCRATCH/said"
      # A part may measure one thing several times.
      while IFS=$'\t' read -r line rate; do
        # The name of a file.
        note "${line//\//_}-$commit" "$rate"
        [[ -n ${MET[$line]:-} ]] || ORDER+=("$line")
        MET[$line]=yes
      done < <(sed -nE "s/^  (.*[^ ]) +([0-9]+) changes\/s\$/$part: \1\t\2/p" "$SCRATCH/said")
    done
  done
done
((${#ORDER[@]})) || fail "no part printed changes/s"
echo
heading "changes/s, medians"
for line in "${ORDER[@]}"; do row "$line" "${line//\//_}"; done
footer "$ROUNDS rounds"
