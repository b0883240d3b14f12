#!/bin/sh
# Creates what the containers need, and leaves alone what exists: the tables of the production template, or the topics.
#
#   localstack/init.sh tables TEMPLATE   takes the standard AWS variables, and TABLE_PREFIX
#   localstack/init.sh topics            takes BROKERS, PARTITIONS and KAFKA_TOPICS, the command that comes with Kafka
set -eu

tables() {
  # Restoring to a point in time is nothing an emulator needs to do, and what is on it may go.
  set -- --template-file "$1" --parameter-overrides PointInTimeRecovery=false DeletionProtection=false
  if [ -n "${TABLE_PREFIX:-}" ]; then set -- "$@" "TablePrefix=$TABLE_PREFIX"; fi
  # CloudFormation's names are narrower than DynamoDB's: what is neither letter nor digit becomes a hyphen.
  stack=tally-data$(printf %s "${TABLE_PREFIX:+-$TABLE_PREFIX}" | tr -c '[:alnum:]' -)
  aws cloudformation deploy --stack-name "$stack" --no-fail-on-empty-changeset "$@"
}

create() {
  topic=$1 partitions=$2
  shift 2
  for config in "$@"; do
    set -- "$@" --config "$config"
    shift
  done
  "${KAFKA_TOPICS:-kafka-topics.sh}" --bootstrap-server "$BROKERS" --create --if-not-exists --topic "$topic" --partitions "$partitions" "$@"
}

topics() {
  create likes "${PARTITIONS:-12}"
  create likes.dlq 1
  # As infra/kafka.yaml has them.
  create changes "${PARTITIONS:-12}" cleanup.policy=delete compression.type=zstd message.timestamp.type=LogAppendTime retention.ms=100800000
  create boards 3 cleanup.policy=compact max.compaction.lag.ms=600000
  create blocks 1 cleanup.policy=compact
}

case ${1:-} in
  tables | topics) "$@" ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
  *) echo "usage: init.sh tables TEMPLATE | topics" >&2; exit 2 ;;
esac
