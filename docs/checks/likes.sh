# shellcheck shell=bash
# Checks of docs/check: likes on their way into Tally, over real engines where a document says so.

CHANGE=(--yes --why "a check")
import() { "${OPERATOR[@]}" import "$@" "${CHANGE[@]}"; }

# Likes from files, through the whole pipeline: what is wrong is named, the rest is counted, and what was stopped goes on.
# TALLY_TEST_LONG=1 imports a million lines, into Apache Kafka.
check_import() {
  local code=0 lines=6000 over=()
  if [[ -n ${TALLY_TEST_LONG:-} ]]; then
    lines=1000000
    engines kafka --only kafka --topics likes:12,likes.dlq:1,changes:12
    over=(--brokers "$BROKERS")
  fi
  local_stack --no-load "${over[@]}"
  cd "$SCRATCH"
  lib likes "$lines" $((lines / 100)) $((lines / 15)) >likes.csv
  printf '%s\n' '{"post_id":"post-1","user_id":"late","action":"like","ts":1500000000000}' \
    '{"post_id":"post-1","user_id":"late","action":"dislike"}' 'no event' >wrong.ndjson
  import likes.csv --dry-run | tee dry.out
  grep -q "send $lines events" dry.out
  [[ ! -e likes.csv.progress ]]
  import wrong.ndjson | tee wrong.out || code=$?
  ((code == 1))
  grep -q '1 bad_action' wrong.out
  grep -q '"line":3,"reason":"not_json"' wrong.ndjson.rejected
  # Ended on the way, and gone on with.
  start first "${OPERATOR[@]}" import likes.csv --rate $((lines / 3)) "${CHANGE[@]}"
  await first test -s likes.csv.progress
  STOP=-KILL stop first
  import likes.csv --rate 20000 | tee second.out
  grep -q "$lines events sent" second.out
  (cat likes.csv; echo "post-1,late,like,1500000000000") >expected.csv
  "$ROOT/docs/examples/verify" "$API" expected.csv --wait "${TALLY_TEST_LONG:+18}60"
}

# From a table in PostgreSQL, while people go on liking: export, import, relay the changes, and compare.
check_postgres() {
  need psql postgresql
  has_postgres || skip "PostgreSQL's server is not installed: apt-get install postgresql"
  start_postgres
  local_stack --no-load
  export TALLY="${OPERATOR[*]}"

  psql -qX -v ON_ERROR_STOP=1 <<'SQL'
CREATE TABLE post_likes (
  post_id text, user_id text, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (post_id, user_id)
);
INSERT INTO post_likes
  SELECT 'post-' || n % 60, 'user-' || n / 60, timestamptz '2020-01-01' + n * interval '1 minute' FROM generate_series(0, 19999) n;
SQL
  # People like and unlike all the while.
  cat >"$SCRATCH/people.sql" <<'SQL'
\set post random(0, 59)
\set other random(0, 59)
\set user random(0, 400)
INSERT INTO post_likes (post_id, user_id) VALUES ('post-' || :post, 'user-' || :user) ON CONFLICT DO NOTHING;
DELETE FROM post_likes WHERE post_id = 'post-' || :other AND user_id = 'user-' || :user;
SQL
  start people "$SERVER/pgbench" -n -c 4 -T 15 -R 150 -f "$SCRATCH/people.sql"

  cd "$SCRATCH"
  examples=$ROOT/docs/examples
  psql -qX -v ON_ERROR_STOP=1 -f "$examples/postgres/outbox.sql"
  "$examples/postgres/export" >likes.csv
  sleep 2   # Time for changes that the export does not have.
  import likes.csv --rate 4000
  while running people; do
    "$examples/postgres/relay" "$BROKERS"
  done
  alive_or_done people
  "$examples/postgres/relay" "$BROKERS"
  "$examples/postgres/relay" "$BROKERS"
  psql -qAtX -c "SELECT count(*) FROM likes_outbox" | grep -qx 0
  changes=$(psql -qAtX -c "SELECT last_value FROM likes_outbox_id_seq")
  ((changes > 100)) || fail "only $changes changes while it ran"
  "$examples/postgres/export" >after.csv
  ! cmp -s likes.csv after.csv
  "$examples/verify" "$API" after.csv --wait 60 | tee verified.out

  # The switch: the writers are stopped and the outbox is empty. From here on they write to Tally, which goes on from there.
  psql -qAtX -c "SELECT count(*) FROM likes_outbox" | grep -qx 0
  first=$(sed -n 2p after.csv)
  IFS=, read -r post user _ <<<"$first"
  put() { curl -s -o answer -w '%{http_code}\n' -X "$1" "$API/v1/posts/$2/likes/$3" | grep -qx 202 || fail "$1: $(cat answer)"; }
  put DELETE "$post" "$user"
  grep -vxF "$first" after.csv >switched.csv
  for n in {0..59}; do
    put PUT "post-$n" "switched-$n"
    echo "post-$n,switched-$n," >>switched.csv
  done
  "$examples/verify" "$API" switched.csv --wait 60 | tee switched.out
  psql -qAtX -c "SELECT count(*) FROM likes_outbox" | grep -qx 0
  echo "$(tail -1 verified.out), $changes changes meanwhile; after the switch $(tail -1 switched.out)"
}

# From Redis sets, while people go on liking: export, import, relay the changes, and compare.
check_redis() {
  need redis-server
  python3 -m venv "$SCRATCH/venv" || skip "python3 has no working venv: apt-get install python3-venv"
  "$SCRATCH/venv/bin/pip" --quiet --retries 1 --timeout 10 install redis || skip "the Python package redis cannot be fetched"
  export PATH=$SCRATCH/venv/bin:$PATH
  start redis redis-server --port 0 --unixsocket "$SCRATCH/redis.sock" --save '' --appendonly no --dir "$SCRATCH"
  await redis test -S "$SCRATCH/redis.sock"
  URL=unix://$SCRATCH/redis.sock
  local_stack --no-load
  export TALLY="${OPERATOR[*]}"
  cat >"$SCRATCH/people.py" <<'PY'
import json, pathlib, random, sys, time
import redis
url, script, what = sys.argv[1:]
store = redis.Redis.from_url(url, decode_responses=True)
if what == "before":
    pipe = store.pipeline()
    for n in range(20_000):
        pipe.sadd(f"likes:post-{n % 60}", f"user-{n // 60}")
    pipe.execute()
elif what == "meanwhile":
    like, ends, changes = store.register_script(pathlib.Path(script).read_text()), time.time() + 12, 0
    while time.time() < ends:
        post, user = f"likes:post-{random.randrange(60)}", f"user-{random.randrange(400)}"
        changes += like([post, "like-changes"], [user, random.choice(["like", "unlike"]), int(time.time() * 1000)])
        time.sleep(0.005)
    print(changes)
else:
    for key in store.scan_iter(match="likes:*"):
        for user in store.smembers(key):
            print(json.dumps({"post_id": key[6:], "user_id": user}))
PY
  examples=$ROOT/docs/examples
  cd "$SCRATCH"
  python3 people.py "$URL" "$examples/redis/like.lua" before
  start people python3 people.py "$URL" "$examples/redis/like.lua" meanwhile
  "$examples/redis/export" "$URL" >likes.ndjson
  sleep 2
  import likes.ndjson --rate 4000 --ts 1577836800000
  while running people; do
    "$examples/redis/relay" "$URL" "$BROKERS"
  done
  alive_or_done people
  "$examples/redis/relay" "$URL" "$BROKERS"
  (($(cat people.out) > 100)) || fail "only $(cat people.out) changes while it ran"
  python3 people.py "$URL" "$examples/redis/like.lua" after >after.ndjson
  "$examples/verify" "$API" after.ndjson --wait 60 | tee verified.out
  echo "$(tail -1 verified.out), $(cat people.out) changes meanwhile"
}

# What docs/operate.md says of tokens: without one 401, with the write token 202, and reading with either way of closing it.
check_tokens() {
  local_stack --no-load
  cd "$SCRATCH"
  echo reading >read.token
  echo writing >write.token
  echo administering >admin.token
  export AWS_ENDPOINT_URL=$STORE AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  start api "$TALLY_TEST_BIN/tally-count-api" --listen 127.0.0.1:0 --admin-listen off --log-format json --brokers "$BROKERS" \
    --read-token-file read.token --write-token-file write.token --admin-token-file admin.token
  await api grep -q '"message":"listening"' api.log
  closed=http://$(sed -n '/"message":"listening"/s/.*"address":"\([^"]*\)".*/\1/p' api.log)
  like=/v1/posts/post-1/likes/user-1

  # asked STATUS ARGUMENT..: what curl is answered with.
  asked() {
    local expected=$1 status
    shift
    status=$(curl -s -o answer -w '%{http_code}' "$@")
    [[ $status == "$expected" ]] || fail "curl $*: $status, not $expected: $(cat answer)"
  }

  asked 401 -X PUT "$closed$like"
  asked 401 -X PUT -H 'authorization: Bearer reading' "$closed$like"
  asked 202 -X PUT -H 'authorization: Bearer writing' "$closed$like"
  shards=(-X PUT -H 'content-type: application/json' -d '{"number_of_shards":64}' "$closed/v1/posts/post-1/counters/likes")
  asked 401 -H 'authorization: Bearer writing' "${shards[@]}"
  asked 200 -H 'authorization: Bearer administering' "${shards[@]}"
  asked 401 "$closed/v1/posts/post-1/likes"
  asked 401 -H 'authorization: Bearer other' "$closed/v1/posts/post-1/likes"
  asked 200 -H 'authorization: Bearer reading' "$closed/v1/posts/post-1/likes"
  liked() { curl -s -H 'authorization: Bearer reading' "$closed$like" | grep -q '"liked":true'; }
  await api liked
  asked 401 "$closed$like"
  # On the local stack both are open.
  asked 202 -X PUT "$API/v1/posts/post-1/likes/user-2"
  asked 200 "$API/v1/posts/post-1/likes"
  ! grep -qE 'reading|writing|administering' api.log || fail "a token is in the log"
  echo "401 without a token, 202 and 200 with the right one"
}

# Part 1 of docs/trends.sql as plain views of PostgreSQL, over a log with copies that are cut otherwise: every sum is what was written once.
check_trends_sql() {
  need psql postgresql
  has_postgres || skip "PostgreSQL's server is not installed: apt-get install postgresql"
  start_postgres
  # What was written, once: `truth`. The log of it, with copies: `changes`, in place of the source.
  python3 - "$SCRATCH" <<'PY'
import json, random, sys, time
draw, now = random.Random(5), int(time.time())
log, truth, offsets = [], {}, [0, 0, 0]
homes = {}
for g in range(3):
    for partition in range(3):
        entries = []
        for nth in range(400):
            # A second on the edge of the window would be in it or not by when the query is run.
            second = now - draw.choice([60, 3600, 20 * 3600, 25 * 3600])
            subject, user = f"p{partition}-{draw.randrange(12)}", draw.randrange(30)
            before = homes.get((subject, user))
            after = draw.choice([None, ("us",), ("de",), (None,)])
            if before == after:
                continue
            homes[subject, user] = after
            weights = [1 if before else 0, 1 if after else 0]
            regions = {"from": (before or after)[0], "to": (after or before)[0]}
            more = [{name: region for name, region in regions.items() if region}]
            entries.append([subject, "likes", 0, f"u{user}", *weights, second, f"{nth:040d}", nth] + (more if more[0] else []))
            if second > now - 24 * 3600:
                for home, sign in ((before, -1), (after, 1)):
                    for region in ({None, home[0]} if home else ()):
                        truth[subject, region] = truth.get((subject, region), 0) + sign
        at, copies = 0, 0
        while at < len(entries):
            if at and copies < 200 and draw.random() < 0.3:
                at, copies = draw.randrange(at), copies + 1
            end = min(at + draw.randrange(1, 9), len(entries))
            log.append((partition, g, entries[at:end]))
            at = end
# Stream shards beside each other in a partition, with what counts nothing between them: a marker, and a message without sections.
order = {}
for partition, g, entries in log:
    order.setdefault((partition, g), []).append(entries)
with open(f"{sys.argv[1]}/log", "w") as out:
    def write(partition, sections):
        row = [3, now * 1000, json.dumps(sections) if sections else "\\N", partition, offsets[partition]]
        offsets[partition] += 1
        print(*row, sep="\t", file=out)

    while order:
        partition = draw.choice(sorted({partition for partition, _ in order}))
        sections = [{"s": "label/idle"}]
        for g in [g for there, g in sorted(order) if there == partition and draw.random() < 0.7]:
            entries = order[partition, g].pop(0)
            if not order[partition, g]:
                del order[partition, g]
            sections.append({"s": f"label/{g}", "to": entries[-1][7], "e": entries})
        write(partition, sections)
        if draw.random() < 0.1:
            write(partition, None)
            marker = ["p", "likes", 0, "!recount", None, None, now, f"{offsets[partition]:040d}", None, {"marker": "0" * 32}]
            write(partition, [{"s": "label/marked", "e": [marker]}])
with open(f"{sys.argv[1]}/truth", "w") as out:
    for (subject, region), gained in sorted(truth.items(), key=str):
        print(subject, region or "\\N", gained, sep="\t", file=out)
PY
  {
    echo 'CREATE TABLE changes (v INT, read BIGINT, sections JSONB, log_partition INT, log_offset BIGINT, log_time TIMESTAMPTZ DEFAULT now());'
    echo 'CREATE TABLE truth (subject TEXT, region TEXT, gained BIGINT);'
    sed -n '/^CREATE MATERIALIZED VIEW/,/^-- ==== 2/p' docs/trends.sql | sed 's/^CREATE MATERIALIZED VIEW/CREATE VIEW/'
    echo "\\copy changes (v, read, sections, log_partition, log_offset) FROM $SCRATCH/log"
    echo "\\copy truth FROM $SCRATCH/truth"
  } >"$SCRATCH/all.sql"
  psql -qX -v ON_ERROR_STOP=1 -f "$SCRATCH/all.sql"
  ask() { psql -qXAt -v ON_ERROR_STOP=1 -c "$1"; }
  [[ -z $(ask 'SELECT * FROM changes_unknown') ]] || fail "a version is not known"
  wrong=$(ask "SELECT * FROM (SELECT subject, region, gained FROM gained_24h WHERE gained <> 0) AS found
    EXCEPT SELECT subject, region, gained FROM truth")$(ask "SELECT subject, region, gained FROM truth WHERE gained <> 0
    EXCEPT SELECT subject, region, gained FROM gained_24h")
  [[ -z $wrong ]] || fail "sums differ: $wrong"
  listed=$(ask "SELECT string_agg(subject, ' ' ORDER BY place) FROM top_24h WHERE region IS NULL AND place <= 10")
  wanted=$(ask "SELECT string_agg(subject, ' ' ORDER BY gained DESC, subject) FROM
    (SELECT * FROM truth WHERE region IS NULL AND gained >= 1 ORDER BY gained DESC, subject LIMIT 10) AS first")
  [[ -n $listed && $listed == "$wanted" ]] || fail "the list is $listed, not $wanted"
  doubled=$(ask 'SELECT count(*) FROM change')
  once=$(ask 'SELECT count(*) FROM counted')
  ((doubled > once)) || fail "the log has no copies"
  echo "$once changes counted once, of $doubled in the log; $(ask 'SELECT count(*) FROM truth') sums and a list as written"
}
