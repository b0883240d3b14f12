#!/bin/sh
# Creates the topic of likes and that of dead letters; leaves them alone where they are there.
# Takes BROKERS, PARTITIONS and KAFKA_TOPICS, the command that comes with Kafka.
set -eu

create() {
  "${KAFKA_TOPICS:-kafka-topics.sh}" --bootstrap-server "$BROKERS" --create --if-not-exists --topic "$1" --partitions "$2"
}

create likes "${PARTITIONS:-12}"
create likes.dlq 1
