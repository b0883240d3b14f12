#!/bin/sh
# Creates the topics of likes, of dead letters and of changes, and those of what is trending; leaves them alone where they are there.
# Takes BROKERS, PARTITIONS and KAFKA_TOPICS, the command that comes with Kafka.
set -eu

create() {
  topic=$1 partitions=$2
  shift 2
  for config in "$@"; do
    set -- "$@" --config "$config"
    shift
  done
  "${KAFKA_TOPICS:-kafka-topics.sh}" --bootstrap-server "$BROKERS" --create --if-not-exists --topic "$topic" --partitions "$partitions" "$@"
}

create likes "${PARTITIONS:-12}"
create likes.dlq 1
# As infra/kafka.yaml has them.
create changes "${PARTITIONS:-12}" cleanup.policy=delete compression.type=zstd message.timestamp.type=LogAppendTime retention.ms=100800000
create boards 3 cleanup.policy=compact max.compaction.lag.ms=600000
create blocks 1 cleanup.policy=compact
