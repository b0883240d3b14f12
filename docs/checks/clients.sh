# shellcheck shell=bash
# Checks of docs/check: what others rely on to talk to Tally, which are the API's document, the schema of an event, and producers.

# part NAME PROGRAMS COMMAND..: prints passed, failed or skipped for a part of a check. What lacks something ends with 77.
part() {
  local name=$1 program code=0
  for program in $2; do
    command -v "$program" >/dev/null || { echo "skipped $name: $program is not installed" && return; }
  done
  "${@:3}" >"$SCRATCH/said" 2>&1 || code=$?
  case $code in
    0) echo "passed $name" ;;
    77) echo "skipped $name: $(tail -n 1 "$SCRATCH/said")" ;;
    *)
      tail -n 40 "$SCRATCH/said" | sed 's/^/    /'
      echo "failed $name: see above"
      FAILED=1
      ;;
  esac
}

# The API's document, as it is pinned by its test: linters find no error in it, and the clients generated from it compile. What that
# needs comes from package registries the first time. What cannot be fetched is no failure of the document.
check_openapi() {
  local pinned=count-api/tests/api/snapshots/api__openapi__the_document_is_what_clients_were_generated_from.snap
  FAILED=0 TOOLS=${TALLY_CHECK_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tally/check-openapi}
  mkdir -p "$TOOLS"
  # The snapshot's own head stands between two lines of dashes.
  awk 'dashes >= 2; /^---$/ { dashes++ }' "$pinned" >"$SCRATCH/openapi.json"
  part openapi-spectral 'node npm' spectral
  part openapi-redocly 'node npm' redocly
  part openapi-typescript 'node npm java mvn' typescript
  part openapi-python 'java mvn' python_client
  part openapi-go 'go java mvn' go_client
  part openapi-java 'java mvn' java_client
  return $FAILED
}
npm_tools() {
  npm install --prefix "$TOOLS" --no-audit --no-fund --silent @stoplight/spectral-cli@6.16.3 @redocly/cli@2.41.0 typescript@5.9.3 ||
    skip "npm cannot fetch the linters and the compiler"
}
spectral() (
  npm_tools
  echo 'extends: ["spectral:oas"]' >"$SCRATCH/.spectral.yaml"
  "$TOOLS/node_modules/.bin/spectral" lint --ruleset "$SCRATCH/.spectral.yaml" "$SCRATCH/openapi.json"
)
redocly() (
  npm_tools
  REDOCLY_TELEMETRY=off "$TOOLS/node_modules/.bin/redocly" lint --extends recommended "$SCRATCH/openapi.json"
)
# generate LANGUAGE FLAG..: a client in a folder of this name, where the rest of the part then runs.
generate() {
  local version=7.17.0
  [[ -s $TOOLS/openapi-generator-cli-$version.jar ]] ||
    mvn --quiet --batch-mode dependency:copy -Dartifact="org.openapitools:openapi-generator-cli:$version" -DoutputDirectory="$TOOLS" ||
    skip "Maven cannot fetch the generator"
  java -jar "$TOOLS/openapi-generator-cli-$version.jar" generate --global-property apiTests=false,modelTests=false \
    -i "$SCRATCH/openapi.json" -o "$SCRATCH/$1" "${@:2}" || exit
  cd "$SCRATCH/$1" || exit
}
typescript() (
  npm_tools
  generate typescript -g typescript-fetch
  "$TOOLS/node_modules/.bin/tsc" --noEmit --strict --target es2020 --module esnext --moduleResolution bundler --lib es2020,dom index.ts
)
python_client() (
  generate python -g python
  python3 -m venv "$SCRATCH/venv" || skip "python3 has no venv module"
  "$SCRATCH/venv/bin/pip" install --quiet -r requirements.txt || skip "what the client needs cannot be fetched"
  "$SCRATCH/venv/bin/python" -m compileall -q openapi_client || exit
  "$SCRATCH/venv/bin/python" - <<'PY'
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
)
go_client() (
  generate go -g go
  go mod download || skip "what the client needs cannot be fetched"
  go build ./... && go vet .
)
java_client() (
  generate java -g java --library native
  mvn --quiet --batch-mode dependency:resolve dependency:resolve-plugins || skip "what the client needs cannot be fetched"
  mvn --quiet --batch-mode -Dmaven.test.skip=true compile
)

# The JSON schema of an event takes exactly what the consumer takes, over the corpus of good and bad events.
check_schema() {
  python3 -c 'import jsonschema' 2>/dev/null || {
    python3 -m venv "$SCRATCH/venv" || skip "python3 has no working venv: apt-get install python3-venv"
    "$SCRATCH/venv/bin/pip" --quiet --retries 1 --timeout 10 install jsonschema || skip "the Python package jsonschema cannot be fetched"
    export PATH=$SCRATCH/venv/bin:$PATH
  }
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
  COUNT=3000
  engines kafka --only kafka --topics java:12,node:12,go:12,python:12,rust:12
  cp -r docs/examples/producers "$SCRATCH/producers"
  cd "$SCRATCH/producers"
  JARS=${XDG_CACHE_HOME:-$HOME/.cache}/tally/engines
  done_=() skipped=()

  java_() {
    command -v javac >/dev/null || return 77
    java -cp "$(ls -d "$JARS"/kafka-[0-9]*/ | tail -1)*" java/Producer.java "$BROKERS" java $COUNT
  }
  node_() {
    command -v npm >/dev/null && (cd node && npm install --no-audit --no-fund --silent) || return 77
    node node/producer.js "$BROKERS" node $COUNT
  }
  go_() {
    command -v go >/dev/null && (cd go && go mod download) || return 77
    (cd go && go run producer.go "$BROKERS" go $COUNT)
  }
  python_() {
    python3 -m venv venv && venv/bin/pip --quiet --retries 1 --timeout 20 install -r python/requirements.txt || return 77
    venv/bin/python python/producer.py "$BROKERS" python $COUNT
  }
  rust_() {
    [[ -x $TALLY_TEST_BIN/examples/producer ]] || return 77
    "$TALLY_TEST_BIN/examples/producer" "$BROKERS" rust $COUNT
  }

  for language in java node go python rust; do
    code=0
    "${language}_" || code=$?
    if ((code == 77)); then
      skipped+=("$language")
      continue
    fi
    ((code == 0)) || fail "$language ended with $code"
    consume $language
    lib landed 12 $COUNT $language.landed || fail "$language: see above"
    done_+=("$language")
  done
  ((${#done_[@]})) || skip "none of Java, Node, Go, Python and Rust could be tried"
  echo "${done_[*]}: all in murmur2's partition, in order${skipped[*]:+; skipped: ${skipped[*]}}"
}

# consume TOPIC: what is in a topic of the engines `kafka`, with partitions and keys, into TOPIC.landed.
consume() {
  "$ROOT/localstack/engines" consume --folder "$SCRATCH/kafka" --topic "$1" --from-beginning --timeout-ms 8000 \
    --formatter-property print.partition=true --formatter-property print.key=true >"$1.landed" 2>/dev/null || true
}
