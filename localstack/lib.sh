# shellcheck shell=bash
# shellcheck disable=SC2034 # Scripts read what functions set.
# What shell scripts share: processes, ports, engines, PostgreSQL, readiness and metrics. A script sources this file first. It answers
# --help with the header comment of the script, goes to the root of the repository, and ends what it has started when the script ends.
# What failed leaves its folder.
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
TALLY_TEST_BIN=${TALLY_TEST_BIN:+$(cd "$TALLY_TEST_BIN" && pwd)}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
ROOT=$PWD
SCRATCH=$(mktemp -d)
ENGINES=() STARTED=()
declare -A PIDS=()

fail() {
  echo "$0: $*" >&2
  exit 1
}
# skip WHY: ends a script that this machine cannot run.
skip() {
  echo "$*"
  exit 77
}
# need PROGRAM [PACKAGE]: skips if it is not installed.
need() { command -v "$1" >/dev/null || skip "$1 is not installed: apt-get install ${2:-$1}"; }
need_docker() {
  docker compose version >/dev/null 2>&1 && docker version >/dev/null 2>&1 || skip "no Docker engine answers, or it has no compose"
}
lib() { python3 -B "$ROOT/localstack/lib.py" "$@"; }
# The numbers of $1 ports of the loopback that are free.
free_ports() { lib ports "$1"; }

# start PROCESS COMMAND..: runs a command in the background. Its output goes to PROCESS.out and PROCESS.log.
start() {
  local process=$1
  shift
  "$@" >"$SCRATCH/$process.out" 2>"$SCRATCH/$process.log" &
  PIDS[$process]=$! STARTED=("$process" "${STARTED[@]}")
}
# stop [PROCESS..]: stops these processes one after the other, or all of them, the last one that was started first. So a
# service finds the store that it still writes to.
stop() {
  local process
  (($#)) || set -- "${STARTED[@]}"
  for process in "$@"; do
    [[ -n ${PIDS[$process]:-} ]] || continue
    kill "${STOP:--TERM}" "${PIDS[$process]}" 2>/dev/null || true
    wait "${PIDS[$process]}" 2>/dev/null || true
    unset "PIDS[$process]"
  done
}
running() { kill -0 "${PIDS[$1]}" 2>/dev/null; }
# alive [PROCESS..]: fails with the end of its log if one of these processes, or of all, has ended.
alive() {
  local process
  (($#)) || set -- "${!PIDS[@]}"
  for process in "$@"; do running "$process" || fail "$process ended: $(tail -n 5 "$SCRATCH/$process.log")"; done
}
# alive_or_done PROCESS: fails if the process has failed. Forgets it if it has ended well.
alive_or_done() {
  if [[ -z ${PIDS[$1]:-} ]] || running "$1"; then return; fi
  wait "${PIDS[$1]}" || fail "$1 failed: $(tail -n 5 "$SCRATCH/$1.log")"
  unset "PIDS[$1]"
}
# await PROCESS COMMAND..: repeats a command until it succeeds, for ten minutes and while the process runs.
await() {
  local process=$1 deadline=$((SECONDS + 600))
  shift
  until "$@"; do
    alive "$process"
    ((SECONDS < deadline)) || fail "waited ten minutes for: $*"
    sleep 0.1
  done
}
# A script that has more to end defines at_end.
finish() {
  local code=$? folder
  stop
  if declare -F at_end >/dev/null; then at_end || true; fi
  for folder in "${ENGINES[@]}"; do "$ROOT/localstack/engines" down --folder "$folder" 2>/dev/null || true; done
  [[ ! -e $SCRATCH/pg/postmaster.pid ]] || as_postgres "$SERVER/pg_ctl" -D "$SCRATCH/pg" -m immediate stop >/dev/null || true
  case $code in 0 | 69 | 77) rm -rf "$SCRATCH" ;; *) echo "what it left is in $SCRATCH" >&2 ;; esac
  exit $code
}
trap finish EXIT

# engines NAME FLAG..: starts engines in a folder of this name. Sets BROKERS and REDIS.
engines() {
  local code=0
  ENGINES+=("$SCRATCH/$1")
  "$ROOT/localstack/engines" up --folder "$SCRATCH/$1" --any-ports "${@:2}" >"$SCRATCH/$1.env" 2>"$SCRATCH/$1.log" || code=$?
  ((code != 69)) || skip "$(tail -n 1 "$SCRATCH/$1.log")"
  ((code == 0)) || fail "$(tail "$SCRATCH/$1.log")"
  BROKERS=$(sed -n 's/^export TALLY_BROKERS=//p' "$SCRATCH/$1.env") REDIS=$(sed -n 's/^export TALLY_REDIS=//p' "$SCRATCH/$1.env")
}
# stack FOLDER FLAG..: starts a local stack of these programs as the process `stack`. Sets API, ADMIN, STORE and, if the flags name
# no others, BROKERS to its addresses, and OPERATOR to the command `tally` about it.
stack() {
  local ports
  # Not from a pipe: the ports are held until python3 has ended.
  read -ra ports <<<"$(free_ports 4)"
  API=http://127.0.0.1:${ports[0]} ADMIN=127.0.0.1:${ports[1]} STORE=http://127.0.0.1:${ports[2]}
  [[ " $* " == *" --brokers "* ]] || BROKERS=127.0.0.1:${ports[3]}
  start stack env -u AWS_ENDPOINT_URL "$1/tally-localstack" --api-port "${ports[0]}" --admin-listen "$ADMIN" \
    --dynamodb-port "${ports[2]}" --kafka-port "${ports[3]}" "${@:2}"
  OPERATOR=(env AWS_ENDPOINT_URL="$STORE" AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
    TALLY_BROKERS="$BROKERS" TALLY_OPERATOR=check "$1/tally")
  await stack shows_metrics "$ADMIN"
}
shows_metrics() { curl -fs -o /dev/null "http://$1/metrics"; }
ready() { curl -fs -o /dev/null "http://$1/readyz"; }
# metric ADMIN NAME [LABEL]: the sum of a metric over its labels, or over those with this one. Fails if there is none.
metric() {
  curl -fsS "http://$1/metrics" | awk -v name="$2" -v label="${3:-}" '
    { split($1, part, "{") }
    part[1] == name && (label == "" || index($0, label)) { sum += $NF; found = 1 }
    END { if (!found) exit 1; printf "%.0f\n", sum }' || fail "there is no metric $2 at http://$1/metrics"
}

# PostgreSQL refuses to run as root.
as_postgres() { if ((EUID == 0)); then runuser -u postgres -- "$@"; else "$@"; fi; }
# Whether there is a server of PostgreSQL. Sets SERVER to the folder with its programs.
has_postgres() { SERVER=$(printf '%s\n' /usr/lib/postgresql/*/bin | tail -n 1) && [[ -x $SERVER/initdb ]]; }
# Starts PostgreSQL at a socket in the scratch folder, without fsync.
start_postgres() {
  export PGHOST=$SCRATCH PGDATABASE=postgres PGUSER=postgres
  ((EUID != 0)) || chown postgres "$SCRATCH"
  chmod 755 "$SCRATCH"
  as_postgres "$SERVER/initdb" -D "$SCRATCH/pg" -U postgres -A trust --locale C --no-sync >"$SCRATCH/initdb.log"
  # Not a flag of the server, which nothing could change while it runs.
  echo "fsync = off" >>"$SCRATCH/pg/postgresql.conf"
  as_postgres "$SERVER/pg_ctl" -D "$SCRATCH/pg" -w -l "$SCRATCH/pg.log" -o "-c listen_addresses= -k $SCRATCH" start >/dev/null
}
