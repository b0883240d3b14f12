# shellcheck shell=bash
# Checks of docs/check that bring their own events, clients or steps.

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
  grep -q "; with earlier runs $lines of" second.out
  (cat likes.csv; echo "post-1,late,like,1500000000000") >expected.csv
  "$ROOT/docs/examples/verify" "$API" expected.csv --wait "${TALLY_TEST_LONG:+18}60"
}

# follow RELAY..: relays changes for as long as people make them, and what they left.
follow() {
  while running people; do "$@"; done
  alive_or_done people
  "$@"
  "$@"
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
  psql -qX -v ON_ERROR_STOP=1 -f "$examples/postgres/export.sql" >likes.csv
  sleep 2   # Time for changes that the export does not have.
  import likes.csv --rate 4000
  follow "$examples/postgres/relay" "$BROKERS"
  psql -qAtX -c "SELECT count(*) FROM likes_outbox" | grep -qx 0
  changes=$(psql -qAtX -c "SELECT last_value FROM likes_outbox_id_seq")
  ((changes > 100)) || fail "only $changes changes while it ran"
  psql -qX -v ON_ERROR_STOP=1 -f "$examples/postgres/export.sql" >after.csv
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
  venv redis
  start redis redis-server --port 0 --unixsocket "$SCRATCH/redis.sock" --save '' --appendonly no --dir "$SCRATCH"
  await redis test -S "$SCRATCH/redis.sock"
  URL=unix://$SCRATCH/redis.sock
  local_stack --no-load
  export TALLY="${OPERATOR[*]}"
  cat >"$SCRATCH/people.py" <<'PY'
import pathlib, random, sys, time
import redis
url, script, what = sys.argv[1:]
store = redis.Redis.from_url(url, decode_responses=True)
if what == "before":
    pipe = store.pipeline()
    for n in range(20_000):
        pipe.sadd(f"likes:post-{n % 60}", f"user-{n // 60}")
    pipe.execute()
else:
    like, ends, changes = store.register_script(pathlib.Path(script).read_text()), time.time() + 12, 0
    while time.time() < ends:
        post, user = f"likes:post-{random.randrange(60)}", f"user-{random.randrange(400)}"
        changes += like([post, "like-changes"], [user, random.choice(["like", "unlike"]), int(time.time() * 1000)])
        time.sleep(0.005)
    print(changes)
PY
  examples=$ROOT/docs/examples
  cd "$SCRATCH"
  python3 people.py "$URL" "$examples/redis/like.lua" before
  start people python3 people.py "$URL" "$examples/redis/like.lua" meanwhile
  "$examples/redis/export" "$URL" >likes.ndjson
  sleep 2
  import likes.ndjson --rate 4000 --ts 1577836800000
  follow "$examples/redis/relay" "$URL" "$BROKERS"
  (($(cat people.out) > 100)) || fail "only $(cat people.out) changes while it ran"
  "$examples/redis/export" "$URL" >after.ndjson
  "$examples/verify" "$API" after.ndjson --wait 60 | tee verified.out
  echo "$(tail -1 verified.out), $(cat people.out) changes meanwhile"
}

# Part 1 of docs/trends.sql as plain views of PostgreSQL, over a log with copies that are cut otherwise: every sum is what was written once.
check_trends_sql() {
  need psql postgresql
  has_postgres || skip "PostgreSQL's server is not installed: apt-get install postgresql"
  start_postgres
  # What was written, once: `truth`. The log of it, with copies: `changes`, in place of the source.
  python3 - "$SCRATCH" <<'PY'
import itertools, json, random, sys, time
draw, now, offset = random.Random(5), int(time.time()), itertools.count()
truth, homes, log = {}, {}, []
for partition, shard in itertools.product(range(3), range(3)):
    entries = []
    for nth in range(400):
        # A second on the edge of the window is in it or not, as the clock of the query says.
        second = now - draw.choice([60, 3600, 20 * 3600, 25 * 3600])
        subject, user = f"p{partition}-{draw.randrange(12)}", draw.randrange(30)
        before, after = homes.get((subject, user)), draw.choice([None, ("us",), ("de",), (None,)])
        if before == after:
            continue
        homes[subject, user] = after
        regions = {"from": (before or after)[0], "to": (after or before)[0]}
        regions = {name: region for name, region in regions.items() if region}
        weights = [int(before is not None), int(after is not None)]
        entries.append([subject, "likes", 0, f"u{user}", *weights, second, f"{nth:040d}", nth, *([regions] if regions else [])])
        for home, sign in ((before, -1), (after, 1)) if second > now - 24 * 3600 else ():
            for region in {None, *home} if home else ():
                truth[subject, region] = truth.get((subject, region), 0) + sign
    # A relay that is replaced sends again from an earlier place, and cuts its sections otherwise.
    at, copies, sections = 0, 0, []
    while at < len(entries):
        if at and copies < 200 and draw.random() < 0.3:
            at, copies = draw.randrange(at), copies + 1
        end = min(at + draw.randrange(1, 9), len(entries))
        sections.append({"s": f"label/{shard}", "to": entries[end - 1][7], "e": entries[at:end]})
        at = end
    # The order of a stream shard stays; those of a partition lie between each other.
    log += [(place, partition, section) for place, section in zip(sorted(draw.random() for _ in sections), sections)]
marker = ["p", "likes", 0, "!recount", None, None, now, "0" * 40, None, {"marker": "0" * 32}]
with open(f"{sys.argv[1]}/log", "w") as out:
    for place, partition, section in sorted(log, key=lambda each: each[0]):
        # What counts nothing stands between them: a shard without entries, a message without sections, a marker.
        beside = [[{"s": "label/idle"}, section]] + ([None, [{"s": "label/marked", "e": [marker]}]] if draw.random() < 0.1 else [])
        for sections in beside:
            print(3, now * 1000, json.dumps(sections) if sections else "\\N", partition, next(offset), sep="\t", file=out)
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

# The steps of docs/try.md that start each service as a process of its own, as they stand there: its blocks behind the heading, with
# free ports in place of the usual ones. The numbers of the blocks' last requests are compared.
check_processes() {
  local port free program
  need kcat
  need java default-jre-headless
  need redis-server
  mkdir "$SCRATCH/bin"
  awk '/^## Each service as a process/ { on = 1; next } /^## / { on = 0 } on && /^```sh$/ { code = 1; next } /^```$/ { code = 0 } on && code' \
    docs/try.md >"$SCRATCH/steps.sh"
  grep -q tally-trends "$SCRATCH/steps.sh" || fail "docs/try.md has no such steps"
  # The ports of the page, each with a free one. Admin listeners have their default ports there.
  for port in 8000 8080 9090 9091 9094 9095 9097; do
    read -r free < <(free_ports 1)
    sed -i "s/\b$port\b/$free/g" "$SCRATCH/steps.sh"
    for program in count-api:9090 consumer:9091 change-streamer:9094 batch-recount:9095 trends:9097; do
      [[ ${program#*:} == "$port" ]] || continue
      printf '#!/bin/sh\nexport TALLY_ADMIN_LISTEN=127.0.0.1:%s\nexec "%s/tally-%s" "$@"\n' \
        "$free" "$TALLY_TEST_BIN" "${program%:*}" >"$SCRATCH/bin/tally-${program%:*}"
    done
  done
  chmod +x "$SCRATCH"/bin/*
  sed -i "s#\$PWD/target/release#$SCRATCH/bin:$TALLY_TEST_BIN#; s#localstack/engines \([a-z]*\)#& --folder $SCRATCH/engines#
    s#engines up --folder [^ ]*#& --any-ports#; 1i trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT" "$SCRATCH/steps.sh"
  ENGINES+=("$SCRATCH/engines")
  start steps env -u TALLY_TEST_BIN timeout 600 bash -euo pipefail "$SCRATCH/steps.sh"
  wait "${PIDS[steps]}" || fail "a step failed, or took ten minutes: $(tail -n 5 "$SCRATCH/steps.log")"
  unset 'PIDS[steps]'
  grep -q '"likes":2,.*"exact":true' "$SCRATCH/steps.out" || fail "the count is not 2 and exact: $(cat "$SCRATCH/steps.out")"
  grep -q '^nothing wrong was found' "$SCRATCH/steps.out" || fail "tally status found something: $(cat "$SCRATCH/steps.out")"
  echo "each step as it stands in docs/try.md: $(grep -o '"likes":2,.*' "$SCRATCH/steps.out" | head -n 1)"
}

# The manifests against the schemas of Kubernetes, and the variables of each container by its own program.
check_kubernetes() {
  local version
  venv kubernetes-validate==1.37.0
  for version in 1.30 1.37; do
    kubernetes-validate --strict --quiet -k "$version" docs/examples/kubernetes/*.yaml
  done
  python3 - "$TALLY_TEST_BIN" <<'PY'
import pathlib, re, subprocess, sys
import yaml

manifests = [each for path in sorted(pathlib.Path("docs/examples/kubernetes").glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
of_kind = lambda *kinds: [each for each in manifests if each["kind"] in kinds]
settings, secret = of_kind("ConfigMap")[0]["data"], of_kind("Secret")[0]["stringData"]
containers = 0
for each in of_kind("Deployment", "CronJob"):
    name = each["metadata"]["name"]
    template = each["spec"]["jobTemplate"]["spec"]["template"] if each["kind"] == "CronJob" else each["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    service = re.fullmatch("REGISTRY/tally:VERSION-(.+)", container["image"])[1]
    # As the images have it, and nothing else of this process.
    env = {"TALLY_ADMIN_LISTEN": "0.0.0.0:9090", **({"TALLY_LISTEN": "0.0.0.0:8080"} if service == "count-api" else {}), **settings}
    for one in container.get("env", []):
        env[one["name"]] = one["value"] if "value" in one else secret[one["valueFrom"]["secretKeyRef"]["key"]]
    said = subprocess.run([f"{sys.argv[1]}/tally-{service}", "--check", *container.get("args", [])], env=env, capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{name}: {said.returncode}: {said.stdout}{said.stderr}")
    grace = int(settings["TALLY_SHUTDOWN_GRACE"].removesuffix("s"))
    first = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if pod["terminationGracePeriodSeconds"] <= grace + first:
        sys.exit(f"{name}: it is killed before its grace of {grace} s is over")
    if each["kind"] == "Deployment" and each["spec"]["selector"]["matchLabels"] != template["metadata"]["labels"]:
        sys.exit(f"{name}: the selector does not find its pods")
    containers += 1
labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment")]
for each in of_kind("Service", "PodDisruptionBudget"):
    if each["spec"]["selector"].get("matchLabels", each["spec"]["selector"]) not in labels:
        sys.exit(f"{each['kind']} {each['metadata']['name']} selects no pods")
print(f"{len(manifests)} manifests as Kubernetes 1.30 and 1.37 take them, {containers} containers whose variables their programs take")
PY
}

# venv PACKAGE..: puts a Python with these packages first in PATH.
venv() {
  python3 -m venv "$SCRATCH/venv" || skip "python3 has no working venv: apt-get install python3-venv"
  "$SCRATCH/venv/bin/pip" --quiet --retries 1 --timeout 20 install "$@" || skip "Python packages cannot be fetched: $*"
  export PATH=$SCRATCH/venv/bin:$PATH
}

# The API's document, as it is pinned by its test: linters find no error in it, and the clients generated from it compile. What that
# needs comes from package registries the first time. What cannot be fetched is no failure of the document.
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/tally/check-openapi
check_openapi_spectral() {
  document
  echo 'extends: ["spectral:oas"]' >"$SCRATCH/.spectral.yaml"
  npm_tool spectral lint --ruleset "$SCRATCH/.spectral.yaml" "$SCRATCH/openapi.json"
}
check_openapi_redocly() {
  document
  REDOCLY_TELEMETRY=off npm_tool redocly lint --extends recommended "$SCRATCH/openapi.json"
}
document() {
  local pinned=count-api/tests/api/snapshots/api__openapi__the_document_is_what_clients_were_generated_from.snap
  mkdir -p "$TOOLS"
  # The snapshot's own head stands between two lines of dashes.
  awk 'dashes >= 2; /^---$/ { dashes++ }' "$pinned" >"$SCRATCH/openapi.json"
}
npm_tool() {
  need npm
  npm install --prefix "$TOOLS" --no-audit --no-fund --silent @stoplight/spectral-cli@6.16.3 @redocly/cli@2.41.0 typescript@5.9.3 ||
    skip "npm cannot fetch the linters and the compiler"
  "$TOOLS/node_modules/.bin/$1" "${@:2}"
}
# client GENERATOR FLAG..: generates a client and goes to its folder.
client() {
  local version=7.17.0
  need java default-jre-headless
  need mvn maven
  document
  [[ -s $TOOLS/openapi-generator-cli-$version.jar ]] ||
    mvn --quiet --batch-mode dependency:copy -Dartifact="org.openapitools:openapi-generator-cli:$version" -DoutputDirectory="$TOOLS" ||
    skip "Maven cannot fetch the generator"
  java -jar "$TOOLS/openapi-generator-cli-$version.jar" generate --global-property apiTests=false,modelTests=false \
    -i "$SCRATCH/openapi.json" -o "$SCRATCH/client" -g "$@"
  cd "$SCRATCH/client"
}
check_openapi_typescript() {
  client typescript-fetch
  npm_tool tsc --noEmit --strict --target es2020 --module esnext --moduleResolution bundler --lib es2020,dom index.ts
}
check_openapi_python() {
  client python
  venv -r requirements.txt
  python3 -m compileall -q openapi_client
  python3 - <<'PY'
import openapi_client as tally

read = tally.Count.from_json('{"post_id":"p-1","likes":42,"version":57,"exact":true,"as_of":1700000000000,"fresh":true}')
assert (read.post_id, read.likes, read.exact, read.fresh) == ("p-1", 42, True, True)
assert tally.LikeState.from_json('{"liked":false}').liked_at is None
problem = tally.ProblemDocument.from_json(
    '{"type":"urn:tally:problem:bad-id","title":"Bad id","status":400,"detail":"post_ids[3]: an id is empty",'
    '"parameter":"post_ids","index":3}'
)
assert (problem.parameter, problem.index) == ("post_ids", 3)
tally.CountsApi(), tally.LikesApi()
PY
}
check_openapi_go() {
  need go golang
  client go
  go mod download || skip "what the client needs cannot be fetched"
  go build ./...
  go vet .
}
check_openapi_java() {
  client java --library native
  mvn --quiet --batch-mode dependency:resolve dependency:resolve-plugins || skip "what the client needs cannot be fetched"
  mvn --quiet --batch-mode -Dmaven.test.skip=true compile
}

# The JSON schema of an event takes exactly what the consumer takes, over the corpus of good and bad events.
check_schema() {
  python3 -c 'import jsonschema' 2>/dev/null || venv jsonschema
  python3 - <<'PY'
import base64, json, sys
import jsonschema

schema = json.load(open("docs/event.schema.json"))
validator = jsonschema.Draft202012Validator
validator.check_schema(schema)
validator = validator(schema)
validator.validate(schema["$defs"]["event"]["examples"][0])

# What a schema of JSON cannot see, and what parsers of JSON read differently.
BESIDE = {"empty_value", "not_utf8", "not_json", "too_large"}
compared, wrong = 0, []


def ids(event):
    """The ids in an event or in the data of an envelope."""
    objects = [event, event.get("data")] if isinstance(event, dict) else []
    values = [o.get(name) for o in objects if isinstance(o, dict) for name in ("post_id", "user_id")]
    return [value for value in values if isinstance(value, str)]


for number, line in enumerate(open("e2e/bad_input/events.jsonl"), 1):
    case = json.loads(line)
    if case["expect"] in BESIDE or case["value"] is None or case["headers"]:
        continue
    value = b"".join(base64.b64decode(text) * times for text, times in case["value"])
    try:
        # Whole numbers are told by how they are written.
        event = json.loads(value, parse_float=lambda text: [text])
    except RecursionError:
        continue
    longest = max((len(id.encode(errors="surrogatepass")) for id in ids(event)), default=0)
    taken = validator.is_valid(event) and longest <= 256
    compared += 1
    if taken != (case["expect"] == "applied"):
        wrong.append(f"line {number}: {case['class']}: the consumer says {case['expect']}, the schema {taken}")
print("\n".join(wrong[:20]))
print(f"{compared} events compared, {len(wrong)} differences")
sys.exit(bool(wrong) or compared < 500)
PY
}

# A property-based client against the API: no 5xx, and every answer is one that its document describes.
check_schemathesis() {
  local venv=${SCHEMATHESIS_VENV:-${TMPDIR:-/tmp}/tally-schemathesis} tables api admin url panics internal
  if [[ ! -x $venv/bin/schemathesis ]]; then
    python3 -m venv "$venv" || skip "python3 has no venv module"
    "$venv/bin/pip" install --quiet schemathesis openapi-spec-validator || skip "schemathesis cannot be installed"
  fi
  [[ -x $TALLY_TEST_BIN/examples/stage ]] || skip "$TALLY_TEST_BIN has no examples/stage, which cargo build --examples makes"
  read -r tables api admin < <(free_ports 3)
  url=http://127.0.0.1:$api
  export AWS_ENDPOINT_URL=http://127.0.0.1:$tables AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  start stage "$TALLY_TEST_BIN/examples/stage" "$tables" 100
  await stage grep -q posts "$SCRATCH/stage.log"
  # No broker listens where the writes go: 503 has to be described, too.
  start api "$TALLY_TEST_BIN/tally-count-api" --listen "127.0.0.1:$api" --admin-listen "127.0.0.1:$admin" \
    --brokers 127.0.0.1:1 --open-writes --write-budget 50ms --log-format json
  await api ready "127.0.0.1:$admin"
  curl -sf "$url/openapi.json" >"$SCRATCH/openapi.json"
  "$venv/bin/python" -m openapi_spec_validator "$SCRATCH/openapi.json"
  # An endless stream is no answer to wait for. The checks are that every answer is one the document describes: its status, its
  # type, its body, its headers. Faults of ours are looked for in the log below, since a 503 is an answer here.
  "$venv/bin/schemathesis" run "$SCRATCH/openapi.json" --url "$url" --max-examples "${EXAMPLES:-20}" --seed 1 \
    --exclude-path-regex ':stream$' --request-timeout 10 --suppress-health-check all \
    --checks status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance |
    tee "$SCRATCH/said"
  panics=$(grep -c panicked "$SCRATCH/api.log" || true)
  internal=$(grep -c '"status":500' "$SCRATCH/api.log" || true)
  echo "$(grep -oE '[0-9,]+ generated' "$SCRATCH/said" | tail -n 1) requests, panics: $panics, answers 500: $internal"
  [[ $panics == 0 && $internal == 0 ]]
}

# The producers of docs/examples/producers against Apache Kafka: where their events land, in which order, and as what.
check_producers() {
  local language code done_=() skipped=()
  COUNT=3000
  engines kafka --only kafka --topics java:12,node:12,go:12,python:12,rust:12
  cp -r docs/examples/producers "$SCRATCH/producers"
  cd "$SCRATCH/producers"
  for language in java node go python rust; do
    code=0
    (produce $language) || code=$?
    if ((code == 77)); then skipped+=("$language") && continue; fi
    ((code == 0)) || fail "$language ended with $code"
    consume $language
    lib landed 12 $COUNT $language.landed || fail "$language: see above"
    done_+=("$language")
  done
  ((${#done_[@]})) || skip "none of Java, Node, Go, Python and Rust could be tried"
  echo "${done_[*]}: all in murmur2's partition, in order${skipped[*]:+; skipped: ${skipped[*]}}"
}
# produce LANGUAGE: ends with 77 where its tools are missing.
produce() {
  local to=("$BROKERS" "$1" "$COUNT")
  case $1 in
    java) need javac && java -cp "$(ls -d "${XDG_CACHE_HOME:-$HOME/.cache}"/tally/engines/kafka-[0-9]*/ | tail -1)*" java/Producer.java "${to[@]}" ;;
    node) cd node && { npm install --no-audit --no-fund --silent || exit 77; } && node producer.js "${to[@]}" ;;
    go) cd go && { go mod download || exit 77; } && go run producer.go "${to[@]}" ;;
    python) venv -r python/requirements.txt && python3 python/producer.py "${to[@]}" ;;
    rust) [[ -x $TALLY_TEST_BIN/examples/producer ]] || exit 77 && "$TALLY_TEST_BIN/examples/producer" "${to[@]}" ;;
  esac
}

# consume TOPIC: what is in a topic of the engines `kafka`, with partitions and keys, into TOPIC.landed.
consume() {
  "$ROOT/localstack/engines" consume --folder "$SCRATCH/kafka" --topic "$1" --from-beginning --max-messages "$COUNT" --timeout-ms 30000 \
    --formatter-property print.partition=true --formatter-property print.key=true >"$1.landed" 2>/dev/null || true
}
