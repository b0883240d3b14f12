"""Checks what a producer wrote, as Kafka's console consumer prints it: landed.py [--keys] PARTITIONS COUNT FILE.

With --keys the values are not looked at, and a key in another partition is no failure.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "localstack/acceptance"))
from murmur2 import murmur2  # noqa: E402

keys_alone = sys.argv[1] == "--keys"
partitions, count = map(int, sys.argv[-3:-1])
events, misplaced, disordered, last = 0, 0, 0, {}
with open(sys.argv[-1], encoding="utf-8") as landed:
    for line in landed:
        if not line.startswith("Partition:"):
            continue
        where, key, value = line.rstrip("\n").split("\t", 2)
        events += 1
        misplaced += int(where.removeprefix("Partition:")) != (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
        if keys_alone:
            continue
        event = json.loads(value)
        assert set(event) == {"post_id", "user_id", "action", "ts"}, event
        assert event["action"] in ("like", "unlike") and isinstance(event["ts"], int), event
        assert event["post_id"] == key, (key, event)
        pair = event["post_id"], event["user_id"]
        disordered += last.get(pair, 0) > event["ts"]
        last[pair] = event["ts"]
print(f"{events} events, {misplaced} in another partition than murmur2's, {disordered} out of order")
sys.exit(events != count or not keys_alone and misplaced + disordered > 0)
