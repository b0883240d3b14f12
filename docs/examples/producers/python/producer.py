"""Example to copy: a producer in Python. It sends made-up likes and unlikes to Tally's Kafka topic,
with the key, partition and order that docs/producers.md asks for.

Run it as: python producer.py BROKERS TOPIC COUNT. Tried with confluent-kafka.
"""
import json
import sys

from confluent_kafka import Producer

brokers, topic, count = sys.argv[1:]
producer = Producer(
    {
        "bootstrap.servers": brokers,
        "client.id": "likes-python",
        "acks": "all",
        "enable.idempotence": True,  # retries keep the order
        "partitioner": "murmur2_random",  # the default is CRC32, which sends a key elsewhere
    }
)
failed = []


def delivered(error, _record):
    if error:
        failed.append(error)


for n in range(int(count)):
    event = {
        "post_id": f"post-ü-{n % 97}",
        "user_id": f"user-{n % 211}",
        "action": "unlike" if n // 211 % 3 == 1 else "like",
        "ts": 1_700_000_000_000 + n,
    }
    producer.produce(topic, key=event["post_id"], value=json.dumps(event), on_delivery=delivered)
    producer.poll(0)
producer.flush()
sys.exit(f"{len(failed)} events were not taken, the first: {failed[0]}" if failed else 0)
