#!/usr/bin/env bash
# Ten minutes with a real account, in tables of their own: what the emulator assumes of PartiQL, then the four services on
# this machine, likes and unlikes, every count compared, a recount, and everything deleted again.
#
#   docs/smoke-aws.sh                    # region and credentials from the environment, as for the aws command
#   BROKERS=b-1.msk:9098 FLAGS="--tls --sasl msk-iam --msk-region eu-west-1" docs/smoke-aws.sh    # over MSK
#   REDIS=rediss://cache:6379 docs/smoke-aws.sh                                                   # with ElastiCache
#   KEEP=1 docs/smoke-aws.sh             # leaves the tables
#   ONLY=partiql docs/smoke-aws.sh       # the statements alone, in two minutes: no programs, no Kafka, no Redis
#   LACKS=records-of-statements docs/smoke-aws.sh     # over an engine whose stream has no records of PartiQL statements
#
# A statement that DynamoDB answers otherwise than the emulator is printed as different and fails nothing: correct the
# emulator, then the step.
#
# It needs the aws command, python3, and the programs in TALLY_TEST_BIN (built with --release where it is not set). Without
# BROKERS it starts Apache Kafka here, which needs Java and Maven; without REDIS a Redis. With MSK the topics smoke-likes,
# smoke-likes.dlq and smoke-changes have to be there, and empty (TOPIC and CHANGES name others). The account needs: cloudformation deploy, and all of
# dynamodb on tables that begin with `tally-smoke-`. It writes some 5,000 likes. To be throttled, it writes up to 50 MB under
# one key of a table on demand, and as much in a table with provisioned units.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
TALLY_TEST_BIN=${TALLY_TEST_BIN:+$(cd "$TALLY_TEST_BIN" && pwd)}
cd "$(dirname "$0")/.."
SCRATCH=$(mktemp -d) PIDS=() TABLES=() STACK='' PREFIX=tally-smoke-$(date +%s)-
trap finish EXIT
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
delete_tables() {
  local table
  [[ -z ${KEEP:-} && ${#TABLES[@]} != 0 ]] || return 0
  say "deleting the tables"
  [[ -z $STACK ]] || aws cloudformation delete-stack --stack-name "$STACK" || true
  # The template keeps tables that hold data: these are named one by one.
  for table in "${TABLES[@]}"; do
    aws dynamodb delete-table --table-name "$PREFIX$table" --output text --query TableDescription.TableStatus || true
  done
}
finish() {
  local code=$? pid
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
  delete_tables || true
  localstack/engines down --folder "$SCRATCH/engines" 2>/dev/null || true
  # The last line of a run that is skipped is what it lacks.
  case $code in 0 | 69) rm -rf "$SCRATCH" ;; *) echo "what it left is in $SCRATCH" >&2 ;; esac
  exit $code
}
# What scripts in Python share: lib EXPRESSION
lib() { python3 -B -c "import sys; sys.path.insert(0, 'localstack'); from lib import *; print(*($1), sep='\n')"; }
for command in aws python3; do command -v $command >/dev/null || { echo "$command is not installed" >&2; exit 69; }; done
# The programs read the one, older aws commands the other.
AWS_REGION=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || true)}}
export AWS_REGION AWS_DEFAULT_REGION=$AWS_REGION
aws dynamodb list-tables --max-items 1 >/dev/null || { echo "no region, no credentials, or no permission to list tables" >&2; exit 78; }
if [[ -z $TALLY_TEST_BIN && ${ONLY:-} != partiql ]]; then
  cargo build --release --locked --workspace --bins
  TALLY_TEST_BIN=$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)
fi

# What the emulator assumes of PartiQL.
STEP=0 SAME=0 DIFFERENT=() UNTRIED=()
step() { STEP=$1 && say "PartiQL $1: $2"; }
judge() { # ASSUMED ANSWER
  if [[ $2 == "$1" ]]; then
    SAME=$((SAME + 1))
    echo "          as assumed"
  else
    DIFFERENT+=("$STEP")
    printf '          differs: %s\n          assumed: %s\n' "$2" "$1"
  fi
}
untried() { UNTRIED+=("$STEP") && echo "          not tried: $1"; }

create() { # TABLE OPTION..
  aws dynamodb create-table --table-name "$PREFIX$1" "${@:2}" --key-schema AttributeName=pk,KeyType=HASH \
    AttributeName=sk,KeyType=RANGE --attribute-definitions AttributeName=pk,AttributeType=S \
    AttributeName=sk,AttributeType=S >/dev/null && TABLES+=("$1")
}
# ask OPERATION QUERY OPTION..: what the query finds in the answer, or the exception and its message.
ask() {
  aws dynamodb "$1" --query "$2" --output text "${@:3}" 2>"$SCRATCH/refusal" ||
    grep -m 1 . "$SCRATCH/refusal" | sed -E 's/^.*An error occurred \((\w+)\)[^:]*: /\1: /'
}
# statements TEXT..: the JSON of a batch; WITH is what every statement has beside its text.
WITH=''
statements() {
  local text all=
  for text in "$@"; do all+=", {\"Statement\": \"${text//\"/\\\"}\"$WITH}"; done
  echo "[${all:2}]"
}
# batch TEXT..: the code of each outcome, `done` where it is a success.
CODES="join(' ', Responses[].[Error.Code || 'done'][])"
batch() { ask batch-execute-statement "$CODES" --statements "$(statements "$@")"; }
execute() { ask execute-statement 'length(Items)' --statement "$@"; }
# names WORD..: each word with the outcome of a statement in which it is a name without quotation marks.
names() {
  local codes nth texts word
  while (($#)); do
    texts=() nth=0
    for word in "${@:1:25}"; do texts+=("SELECT $word FROM \"$ROWS\" WHERE pk = 'p' AND sk = '$((nth++))'"); done
    codes=$(batch "${texts[@]}")
    if [[ $codes == *:* ]]; then echo "$codes"; else paste -d ' ' <(printf '%s\n' "${@:1:25}") <(tr ' ' '\n' <<<"$codes"); fi
    shift $(($# < 25 ? $# : 25))
  done
}
at() { echo "WHERE pk = 'p' AND sk = '$1'"; }
update() { echo "UPDATE \"$ROWS\" $2 $(at "$1")"; } # KEY CHANGES
item() { # KEY QUERY
  ask get-item "Item.$2" --table-name "$ROWS" --consistent-read --key "{\"pk\": {\"S\": \"p\"}, \"sk\": {\"S\": \"$1\"}}"
}
# exhaust TABLE: writes 5 MB at a time under one key until nothing of a batch is done, ten times at most. Sets THROTTLED to
# the codes that there were, and WHOLE to what became of the batch of which nothing was done.
exhaust() {
  local WITH codes filler round sk texts
  filler=$(head -c 200000 /dev/zero | tr '\0' x)
  WITH=", \"Parameters\": [{\"S\": \"$filler\"}]" THROTTLED='' WHOLE=''
  for ((round = 0; round < 10; round++)); do
    texts=()
    for sk in {1..25}; do texts+=("INSERT INTO \"$PREFIX$1\" VALUE {'pk': 'hot', 'sk': '$round-$sk', 'filler': ?}"); done
    statements "${texts[@]}" >"$SCRATCH/large.json"
    # What is throttled as a whole is not to be sent again.
    codes=$(AWS_MAX_ATTEMPTS=1 ask batch-execute-statement "$CODES" --statements "file://$SCRATCH/large.json")
    if [[ $codes == *:* ]]; then WHOLE=$codes && break; fi
    THROTTLED=$(tr ' ' '\n' <<<"$THROTTLED $codes" | sort -u | grep -vxE 'done|' | paste -sd ' ' || true)
    if [[ " $codes " != *" done "* ]]; then WHOLE="each has an outcome" && break; fi
  done
}
UNTHROTTLED="ten batches of 25 statements, 200 KB each, were carried out"

say "creating the tables of the PartiQL steps"
ROWS=${PREFIX}statements
create statements --billing-mode PAY_PER_REQUEST
# A limit of its own is reached soon. Engines that know none may still limit a key.
create on-demand --billing-mode PAY_PER_REQUEST --on-demand-throughput MaxReadRequestUnits=10,MaxWriteRequestUnits=10 \
  2>"$SCRATCH/refusal" || create on-demand --billing-mode PAY_PER_REQUEST
create provisioned --provisioned-throughput ReadCapacityUnits=1,WriteCapacityUnits=1
for table in "${TABLES[@]}"; do aws dynamodb wait table-exists --table-name "$PREFIX$table"; done
inserted=$(batch "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': 'a', 'v': 1, 'n': null}" \
  "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': 'b', 'v': 1}")
[[ $inserted == "done done" ]] || { echo "cannot insert two items: $inserted" >&2; exit 1; }

step 1 "two statements about one item refuse the batch, and nothing of it is done"
answer=$(batch "$(update b 'SET one = 1')" "$(update a 'SET one = 1')" "$(update a 'SET two = 2')")
judge "ValidationException: Provided list of item keys contains duplicates; set: None" "$answer; set: $(item b one.N)"

step 2 "a read beside a write refuses the batch, and nothing of it is done"
answer=$(batch "SELECT * FROM \"$ROWS\" $(at a)" "$(update b 'SET three = 3')")
judge "ValidationException: Read and write requests together in the same batch is not supported.; set: None" \
  "$answer; set: $(item b three.N)"

step 3 "the keywords of emulator/src/expression/words.rs need quotation marks as names; other words need none"
list=$(sed -n "/^const KEYWORDS/,/^];/p" emulator/src/expression/words.rs)
mapfile -t words < <(grep -oE '"[A-Z_]+"' <<<"$list" | tr -d '"')
keywords=$(names "${words[@]}" | grep -v ' ValidationError$' | sed 's/ done$//' | paste -sd ' ' || true)
others=$(names v gone region version data name status hash range owner | grep -v ' done$' | paste -sd ' ' || true)
judge "keywords that need none: none; other words that need them: none" \
  "keywords that need none: ${keywords:-none}; other words that need them: ${others:-none}"

WITH=', "ReturnValuesOnConditionCheckFailure": "ALL_OLD"'
SHOWN="join(' ', Responses[0].[Error.Code || 'done', Error.Item.sk.S || '-'])"
step 4 "an INSERT that fails does not show the item that is there, though ALL_OLD asks for it"
judge "DuplicateItem -" "$(ask batch-execute-statement "$SHOWN" \
  --statements "$(statements "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': 'a', 'v': 2}")")"

step 5 "an UPDATE whose condition fails shows the item, if ALL_OLD asks for it"
judge "ConditionalCheckFailed a" "$(ask batch-execute-statement "$SHOWN" \
  --statements "$(statements "$(update a 'SET v = 2') AND v = 9")")"
WITH=''

step 6 "more parameters than question marks are refused"
judge "ValidationException: Number of parameters in request and statement don't match." \
  "$(execute "SELECT * FROM \"$ROWS\" WHERE pk = 'p' AND sk = ?" --parameters '[{"S": "a"}, {"S": "b"}]')"

step 7 "ConsumedCapacity of a batch has one element for each table, with the units of conditions that failed"
units="join(', ', sort_by(ConsumedCapacity, &TableName)[].join(' ', [TableName, to_string(CapacityUnits)]))"
answer=$(ask batch-execute-statement "$units" --return-consumed-capacity TOTAL --statements "$(statements \
  "$(update b 'SET v = 1')" "$(update a 'SET v = 2') AND v = 9" "$(update none 'SET v = 2')" \
  "INSERT INTO \"${PREFIX}provisioned\" VALUE {'pk': 'p', 'sk': 'a'}")")
judge "${PREFIX}provisioned 1.0, $ROWS 3.0" "$answer"

step 8 "TableName stands beside an Error, if the statement could be read"
named="join(' ', Responses[].[Error.Code || 'done', TableName || '-'][])"
answer=$(ask batch-execute-statement "$named" --statements "$(statements \
  "$(update a 'SET v = 2') AND v = 9" "DELETE FROM \"${PREFIX}nowhere\" $(at a)" "DELETE \"$ROWS\" $(at b)")")
judge "ConditionalCheckFailed $ROWS ResourceNotFound ${PREFIX}nowhere ValidationError -" "$answer"

step 9 "a statement that the caller may not carry out is refused by itself, with AccessDenied"
arn=$(ask describe-table Table.TableArn --table-name "$ROWS")
policy=$(ask put-resource-policy RevisionId --resource-arn "$arn" --policy '{"Version": "2012-10-17", "Statement":
  [{"Effect": "Deny", "Principal": "*", "Action": "dynamodb:PartiQLDelete", "Resource": "'"$arn"'"}]}')
denied() { [[ $(execute "DELETE FROM \"$ROWS\" $(at none)") == AccessDenied* ]]; }
# It takes a while until a policy is in force.
for ((tries = 0; tries < 10; tries++)); do
  if denied || [[ $policy == *:* ]]; then break; fi
  sleep 2
done
if denied; then
  answer=$(batch "$(update a 'SET v = 1')" "DELETE FROM \"$ROWS\" $(at b)")
  judge "done AccessDenied; still there: b" "$answer; still there: $(item b sk.S)"
else
  untried "no resource policy denies the statement here: $policy"
fi

step 10 "SET a = 1, b = 2 is the same as SET a = 1 SET b = 2"
answer="$(execute "$(update a 'SET x = 1, y = 2')") $(execute "$(update b 'SET x = 1 SET y = 2')")"
judge "0 0; 1 2 and 1 2" "$answer; $(item a "join(' ', [x.N, y.N])") and $(item b "join(' ', [x.N, y.N])")"

step 11 "IS NULL is false of an attribute that is missing"
null=$(execute "SELECT * FROM \"$ROWS\" $(at a) AND n IS NULL")
missing=$(execute "SELECT * FROM \"$ROWS\" $(at b) AND n IS NULL")
judge "items where it is null: 1, where it is missing: 0" "items where it is null: $null, where it is missing: $missing"

step 12 "a throttled statement has the code ThrottlingError in a table on demand"
exhaust on-demand
if [[ -n $THROTTLED ]]; then judge ThrottlingError "$THROTTLED"; else untried "${WHOLE:-$UNTHROTTLED}"; fi
whole=$WHOLE

step 13 "a throttled statement has the code ProvisionedThroughputExceeded in a table with units"
exhaust provisioned
if [[ -n $THROTTLED ]]; then judge ProvisionedThroughputExceeded "$THROTTLED"; else untried "${WHOLE:-$UNTHROTTLED}"; fi

step 14 "a batch of which every statement is throttled is answered with an outcome for each"
if [[ -n $whole && -n $WHOLE ]]; then
  judge "on demand: each has an outcome; with units: each has an outcome" "on demand: $whole; with units: $WHOLE"
else
  untried "$UNTHROTTLED"
fi

WITH=', "ReturnValuesOnConditionCheckFailure": "ALL_OLD"'
step 15 "an UPDATE of an item that is not there fails its condition, and shows none"
judge "ConditionalCheckFailed -" "$(ask batch-execute-statement "$SHOWN" \
  --statements "$(statements "$(update none 'SET v = 2') AND v < 9")")"
WITH=''

step 16 "SET and REMOVE clauses follow each other in one statement"
answer=$(batch "$(update a 'SET v = 3 SET liked = 4 REMOVE x REMOVE n') AND v < 3")
judge "done; 3 4, x None, n None" "$answer; $(item a "join(' ', [v.N, liked.N])"), x $(item a x.N), n $(item a n.NULL)"

step 17 "each statement of a batch has an outcome of its own, in their order"
answer=$(batch "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': 'a', 'v': 9}" "$(update b 'SET v = 5') AND v < 5" \
  "$(update none 'SET v = 5') AND v < 5" "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': 'c', 'v': 5}" "UPDATE \"$ROWS\" SET v = 1")
judge "DuplicateItem done ConditionalCheckFailed done ValidationError; 3 5 5" \
  "$answer; $(item a v.N) $(item b v.N) $(item c v.N)"

step 18 "25 statements make a batch, and 26 are refused"
inserts() { for ((nth = 0; nth < $2; nth++)); do echo "INSERT INTO \"$ROWS\" VALUE {'pk': 'p', 'sk': '$1-$nth'}"; done; }
mapfile -t many < <(inserts some 25) && answer=$(batch "${many[@]}")
mapfile -t many < <(inserts more 26) && refused=$(batch "${many[@]}")
judge "25 done, ValidationException, more: None" \
  "$(tr ' ' '\n' <<<"$answer" | grep -c done) done, ${refused%%:*}, more: $(item more-0 sk.S)"

step 19 "versions of 20 digits compare exactly"
batch "$(update c 'SET v = 36893488147419103232')" >/dev/null
answer=$(batch "$(update c 'SET low = 1') AND v < 36893488147419103232")
judge "ConditionalCheckFailed done" "$answer $(batch "$(update c 'SET high = 1') AND v < 36893488147419103233")"

step 20 "IS MISSING is true of an attribute that is absent alone, and a statement may compare many"
answer=$(batch "$(update c 'SET one = 1') AND v IS MISSING" "$(update b 'SET one = 1') AND four IS MISSING AND five IS MISSING AND v = 5")
judge "ConditionalCheckFailed done" "$answer"

PARTIQL="PartiQL: $SAME steps as assumed"
((${#DIFFERENT[@]} == 0)) || PARTIQL+=", different: ${DIFFERENT[*]}"
((${#UNTRIED[@]} == 0)) || PARTIQL+=", not tried: ${UNTRIED[*]}"
say "$PARTIQL"
[[ ${ONLY:-} != partiql ]] || exit 0

HERE='' GIVEN_BROKERS=${BROKERS:-} GIVEN_REDIS=${REDIS:-}
[[ -n $GIVEN_BROKERS ]] || HERE=kafka
[[ -n $GIVEN_REDIS ]] || HERE+=${HERE:+,}redis
if [[ -n $HERE ]]; then
  say "starting $HERE here"
  localstack/engines up --folder "$SCRATCH/engines" --any-ports --only "$HERE" >"$SCRATCH/env"
  BROKERS=${GIVEN_BROKERS:-$(sed -n 's/^export TALLY_BROKERS=//p' "$SCRATCH/env")}
  REDIS=${GIVEN_REDIS:-$(sed -n 's/^export TALLY_REDIS=//p' "$SCRATCH/env")}
fi
if [[ -n $GIVEN_BROKERS ]]; then
  TOPIC=${TOPIC:-smoke-likes} CHANGES=${CHANGES:-smoke-changes}
else
  TOPIC=likes CHANGES=changes
fi

say "creating the tables $PREFIX.."
STACK=${PREFIX}data TABLES+=(likes like_counts checkpoints recounts)
aws cloudformation deploy --stack-name "$STACK" --template-file infra/data.yaml \
  --parameter-overrides "TablePrefix=$PREFIX" PointInTimeRecovery=false DeletionProtection=false --no-fail-on-empty-changeset >/dev/null

# service PROGRAM ADMIN FLAG..: starts a service.
service() {
  "$TALLY_TEST_BIN/$1" --table-prefix "$PREFIX" --admin-listen "127.0.0.1:$2" "${@:3}" >"$SCRATCH/$1.log" 2>&1 &
  PIDS=("$!" "${PIDS[@]}")
}
# await COMMAND..: repeats a command until it succeeds, for ten minutes and while every service runs.
await() {
  local deadline=$((SECONDS + 600)) pid
  until "$@"; do
    for pid in "${PIDS[@]}"; do kill -0 "$pid" || { tail -n 5 "$SCRATCH"/*.log >&2; exit 1; }; done
    ((SECONDS < deadline)) || { echo "waited ten minutes for: $*" >&2; exit 1; }
    sleep 0.1
  done
}
read -ra KAFKA <<<"--brokers $BROKERS ${FLAGS:-}"
mapfile -t PORTS < <(lib 'free_ports(4)')
API=127.0.0.1:${PORTS[3]}
service tally-change-streamer "${PORTS[0]}" "${KAFKA[@]}" --changes-topic "$CHANGES" --redis "$REDIS"
service tally-consumer "${PORTS[1]}" "${KAFKA[@]}" --topic "$TOPIC"
service tally-count-api "${PORTS[2]}" "${KAFKA[@]}" --topic "$TOPIC" --listen "$API" --write-rate 0 --open-writes --redis "$REDIS"
for nth in 0 1 2; do await curl -fs -o /dev/null "http://127.0.0.1:${PORTS[nth]}/readyz"; done
say "all three services are ready"

say "5,000 likes and unlikes from a file, and one over HTTP"
lib 'likes(5000, 20, 300)' >"$SCRATCH/likes.csv"
"$TALLY_TEST_BIN/tally" import "$SCRATCH/likes.csv" "${KAFKA[@]}" --topic "$TOPIC" --table-prefix "$PREFIX" --rate 1000 --yes --why "a trial" --operator smoke
curl -fsS -X PUT "http://$API/v1/posts/post-0/likes/by-hand" >/dev/null
echo "post-0,by-hand,like," >>"$SCRATCH/likes.csv"

recount() { "$TALLY_TEST_BIN/tally-batch-recount" "${KAFKA[@]}" --changes-topic "$CHANGES" --table-prefix "$PREFIX" --admin-listen off; }
rows_are_in() {
  "$TALLY_TEST_BIN/tally" topic show "${KAFKA[@]}" --topic "$TOPIC" --table-prefix "$PREFIX" -o json 2>/dev/null >"$SCRATCH/topic" || true
  python3 -c 'import json, sys; sys.exit(any(each["lag"] for each in json.load(open(sys.argv[1]))["partitions"]))' "$SCRATCH/topic" 2>/dev/null
}
UNTRIED=()
if [[ ${LACKS:-} == records-of-statements ]]; then
  say "every event becomes a row"
  await rows_are_in
  UNTRIED+=("counts that follow rows by the stream: it has no records of statements here, so a recount makes the counts")
  say "not tried: ${UNTRIED[0]}"
  recount || true
fi

say "comparing every count and every user"
docs/examples/verify "http://$API" "$SCRATCH/likes.csv" --wait 120

say "a recount of everything, which has to find nothing"
recount

say "PASSED; $PARTIQL${UNTRIED[*]:+; not tried: ${UNTRIED[*]}}"
