"""The judge: reads the log with Kafka's own consumer, the tables and the cache by their protocols and the API over HTTP,
and shares no code with what it judges."""

import json
import socket
from collections import Counter

from lib import Wrong, partition_of
from world import CHANGES, counts_of

LISTED = 10
VIEWS = "\x1f+views"  # what counters of views have behind the post
SILENCE = 60_000  # milliseconds without a record before the reading is given up


def records(world, held=None):
    """Everything in the log as (partition, offset, event), each partition in order. What transactions leave in the log are no
    records: how many there are is said then."""
    held = held or sum(world.ends().values()) - sum(starts(world).values())
    shown = [word for name in ("partition", "offset") for word in ("--formatter-property", f"print.{name}=true")]
    text = world.engines("consume", "--topic", "likes", "--from-beginning", "--max-messages", held, "--timeout-ms", SILENCE, *shown)
    found = [line.split("\t", 2) for line in text.splitlines() if line.startswith("Partition:")]
    if len(found) != held:
        raise Wrong(f"{len(found)} records were read of the {held} in the log")
    return [(int(partition[10:]), int(offset[7:]), json.loads(value)) for partition, offset, value in found]


def starts(world):
    lines = world.engines("offsets", "--topic", "likes", "--time", "earliest").split()
    return {int(partition): int(start) for _, partition, start in (line.rsplit(":", 2) for line in lines)}


def fold(records):
    """Since when each user likes each post: the last event decides. And the views of each post, by their counter."""
    likes, views = {}, Counter()
    for _, _, event in records:
        if event["action"] == "view":
            views[event["post_id"] + VIEWS] += 1
        elif event["action"] == "like":
            likes[event["post_id"], event["user_id"]] = event["ts"]
        else:
            likes.pop((event["post_id"], event["user_id"]), None)
    return likes, views


def judge(world, api, records):
    """Compares everything with everything; what was compared. At quiet: nothing may be under way."""
    expected, views = fold(records)
    posts = sorted({event["post_id"] for _, _, event in records if event["action"] != "view"})
    rows, cells, shards = {}, Counter(), Counter()
    for item in world.store.scan("likes"):
        # Of a sum the key is `p#+views.0`.
        shard = item["pk"].replace("#+views.", f"{VIEWS}#")
        counter, _ = shard.rsplit("#", 1)
        if is_cell(item):
            cells[counter] += int(item["n"])
            shards[shard] += int(item["n"])
        # A tombstone is no like.
        elif not item["user_id"].startswith("\x01") and "gone" not in item:
            rows[counter, item["user_id"]] = int(item["liked_at"])
            shards[shard] += 1
    counters = {item["post_id"]: item for item in world.store.scan("like_counts") if not item["post_id"].startswith("\x01")}
    wrong = [*differences("row", expected, rows), *differences("sum", views, cells)]
    wrong += counts_wrong({*posts, *views}, shards, counters)
    likes = Counter(post for post, _ in rows)
    wrong += answers_wrong(api, posts, likes, views)
    cached, stale = cache_wrong(world, posts, likes, counters)
    wrong += stale if cached else ["nothing is in the cache"]
    if wrong:
        raise Wrong("\n".join([f"{len(wrong)} differences:", *wrong[:LISTED]]))
    print(f"  events in the log       {len(records)}")
    print(f"  rows == fold of the log {len(rows)}")
    print(f"  counts == rows          {len(counters)} counters, {len(shards)} shards; so does the API answer, all exact")
    print(f"  in the cache, as fresh  {cached} of {len(posts)} posts; the others are absent", flush=True)


def stored(world):
    """What rows, cells and counts are, without when any of it was written or expires."""
    rows = [row for row in world.store.scan("likes") if is_cell(row) or not row["user_id"].startswith("\x01")]
    kept = {(row["pk"], row["user_id"]): [row.get(name) for name in ("v", "liked_at", "n", "to")] for row in rows}
    return kept | {count.pop("post_id"): {**count, "updated_at": None} for count in world.store.scan("like_counts")}


def is_cell(row):
    return row["user_id"].startswith("\x01cell/")


def differences(what, expected, found):
    for key in expected.keys() | found.keys():
        if expected.get(key) != found.get(key):
            yield f"{what} {key}: should be {expected.get(key)}, is {found.get(key)}"


def counts_wrong(posts, shards, counters):
    likes, counted = Counter(), {}
    for row_key, rows in shards.items():
        likes[row_key.rsplit("#", 1)[0]] += rows
    for post, counter in counters.items():
        shard = lambda name: name[0] == "s" and name[1:].isdigit()
        counted |= {f"{post}#{name[1:]}": int(rows) for name, rows in counter.items() if shard(name)}
    yield from differences("shard", dict(shards), {key: rows for key, rows in counted.items() if rows})
    totals = {post: int(counter["likes"]) for post, counter in counters.items()}
    yield from differences("total", {post: likes[post] for post in totals.keys() | likes.keys()}, totals)
    yield from (f"counter {post}: no event was about it" for post in totals.keys() - posts)


def answers_wrong(api, posts, likes, views):
    answers = {}
    for first in range(0, len(posts), 100):
        page = posts[first : first + 100]
        answers |= {count["post_id"]: (count["likes"], count["exact"]) for count in counts_of(api, page)}
        for count in counts_of(api, page, "counters", counters=["views"]) if views else []:
            answers[count["post_id"] + VIEWS] = count["value"], count["exact"]
    expected = {post: (likes[post], True) for post in posts} | {counter: (sum, True) for counter, sum in views.items()}
    yield from differences("answer", expected, answers)


def cache_wrong(world, posts, likes, counters):
    """How many posts are cached, and what is wrong with any: what is there has to be the count as it stands. What was written
    under another take-over of its partition than the standing beside it counts as absent."""
    cached, wrong = 0, []
    with Cache(world.redis) as cache:

        def get(key):
            held = cache.get(key)
            if held and held.startswith("-"):
                raise Wrong(f"the cache answers {held}")
            return (held or "").split(":")

        standings = [get(f"{{{partition}}}") for partition in range(CHANGES)]
        for post in posts:
            partition = partition_of(post, CHANGES)
            held = get(f"{{{partition}}}likes:{post}")
            if held[0] != "2" or held[:2] != standings[partition][:2]:
                continue
            cached += 1
            _, _, version, shown, _, doubtful = held
            counter = counters.get(post, {"version": "0"})
            if (version, int(shown), doubtful) != (counter["version"], likes[post], "0"):
                wrong.append(f"cached {post}: {held}, should be {likes[post]} at version {counter['version']}")
    return cached, wrong


class Cache:
    """Redis's protocol, as far as a judge needs it: a cluster's answer names the node to ask instead."""

    def __init__(self, urls):
        self.links, self.nodes = {}, [url.removeprefix("redis://") for url in urls.split(",")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for link in self.links.values():
            link.close()

    def get(self, key):
        first = next((node for node in self.nodes if self.link(node)), None)
        answer = self.ask(first, key)
        return self.ask(answer.split()[2], key) if answer and answer.startswith("-MOVED") else answer

    def ask(self, node, key):
        link, name = self.link(node), key.encode()
        link.write(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name))
        link.flush()
        said = link.readline().decode().rstrip()
        if not said.startswith("$"):
            return said
        return None if said == "$-1" else link.read(int(said[1:]) + 2)[:-2].decode()

    def link(self, node):
        """The stream to a node; `None` where there is no listener."""
        if node not in self.links:
            host, port = node.rsplit(":", 1)
            try:
                with socket.create_connection((host, int(port)), timeout=5) as link:
                    self.links[node] = link.makefile("rwb")
            except OSError:
                return None
        return self.links[node]
