"""What a scenario runs on: real engines and the services over them, all gone at its end. What is said, by Kafka's own producer; and who
reads meanwhile. And the judge, which shares no code with what it judges."""

import contextlib
import itertools
import json
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib import ENGINES, Stage, Store, Wrong, ask, clean, free_port, run, until

SERVICES = ("tally-consumer", "tally-change-streamer", "tally-batch-recount", "tally-count-api")
BINARIES = (*SERVICES, "tally-emulator", "tally-localstack", "tally")
CHANGES = 12  # partitions of the log of changes
READY_WITHIN = 120  # seconds
QUIET_WITHIN = 900
UNLIKES = 0.3
REPEATED = 0.05
HOT = 0.1
LISTED = 10
VIEWS = "\x1f+views"  # what counters of views have behind the post
SILENCE = 60_000  # milliseconds without a record before the reading is given up
# Acknowledged by all, in order, and tried for as long as the broker is away.
PRODUCER = ("retries=2147483647", "delivery.timeout.ms=2147483647", "linger.ms=5")


class World(Stage):
    """Apache Kafka, Redis alone or as a cluster, and the emulator; with tables, and without services."""

    binaries = Path()

    def __init__(self, cluster=False, topics=f"likes:12,likes.dlq:1,changes:{CHANGES}"):
        super().__init__(World.binaries, "tally-acceptance-")
        self.producers, self.wrong = [], []
        try:
            only = "kafka" if cluster else "kafka,redis"
            said = self.start_engines("engines", "--only", only, "--topics", topics, *["--redis-cluster"] * cluster)
            self.brokers = said["TALLY_BROKERS"]
            self.redis = said["TALLY_TEST_REDIS_CLUSTER" if cluster else "TALLY_REDIS"]
            self.store = Store(self.emulator())
            self.environment = {
                "AWS_ENDPOINT_URL": self.store.endpoint,
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            }
            self.store.create_tables()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, kind, *_):
        """Ends everything. How each process ended is part of what a scenario judges."""
        for producer in self.producers:
            producer.kill()
        self.end()
        super().__exit__(kind or (Wrong if self.wrong else None))
        print("\n".join([*self.wrong, ""]), end="", flush=True)
        if self.wrong and not kind:
            raise Wrong(f"{len(self.wrong)} processes ended as they should not")

    def stop(self, name):
        self.wrong += filter(None, [super().stop(name)])

    def engines(self, command, *arguments):
        """One of the engines' commands; what it printed."""
        return run(ENGINES, command, "--folder", self.folder / "engines", *arguments)

    def emulator(self):
        port = free_port()
        self.start("tally-emulator", self.binaries / "tally-emulator", "--control", "--port", port)
        until("the emulator", lambda: ask(f"http://127.0.0.1:{port}")[0])
        return f"http://127.0.0.1:{port}"

    def service(self, program, *arguments, name=None, ready=None):
        """A service, once it is ready."""
        name, port = name or program, free_port()
        if name in self.running:
            raise Wrong(f"there is a {name} already")
        arguments = [*arguments, "--admin-listen", f"127.0.0.1:{port}", "--log-format", "json"]
        self.start(name, self.binaries / program, *arguments, environment=self.environment)
        service = Service(self, name, f"http://127.0.0.1:{port}")
        until(f"{name}, whose log is {self.log(name)}", lambda: (ready or Service.is_ready)(service), READY_WITHIN)
        return service

    def consumer(self, name, ready=None):
        return self.service("tally-consumer", "--brokers", self.brokers, name=name, ready=ready)

    def streamer(self, name, *more):
        return self.service("tally-change-streamer", "--brokers", self.brokers, "--redis", self.redis, *more, name=name)

    def recount(self):
        """Everything, once."""
        command = [self.binaries / "tally-batch-recount", "--brokers", self.brokers, "--admin-listen", "off"]
        run(*command, env=clean(self.environment))

    def api(self, name=None):
        """The API; where it is."""
        port = free_port()
        arguments = ["--brokers", self.brokers, "--redis", self.redis, "--listen", f"127.0.0.1:{port}", "--write-rate", "0", "--open-writes"]
        self.service("tally-count-api", *arguments, name=name)
        return f"http://127.0.0.1:{port}"

    def ends(self):
        """Where the log of each partition ends."""
        lines = self.engines("offsets", "--topic", "likes").split()
        return {int(partition): int(end) for _, partition, end in (line.rsplit(":", 2) for line in lines)}

    def safe(self, what="safe"):
        """Of each partition the offset below which everything is a row, by its claim; or something else that the claim says."""
        claims = (item for item in self.store.scan("checkpoints") if item["id"].startswith("claim/likes/"))
        return {int(item["id"].rpartition("/")[2]): int(item.get(what, 0)) for item in claims}

    def rows_are_current(self, but=()):
        """Waits until every record that is in the log now is a row."""
        ends = {partition: end for partition, end in self.ends().items() if partition not in but}

        def current():
            safe = self.safe()
            return all(safe.get(partition, 0) >= end for partition, end in ends.items())

        until("every record to be a row", current, QUIET_WITHIN)

    def is_quiet(self):
        """Waits until everything is a row and counted, and every claim says so of this moment."""
        since = time.time() * 1000
        self.rows_are_current()
        claimed = lambda: all(at > since for at in self.safe("safe_at").values())
        until("every claim to say up to when its rows are complete", claimed, 60)
        self.counts_are_current()

    def counts_are_current(self):
        """Waits until every change of before this moment is counted, as the standing of each partition of the log says."""
        since = time.time() * 1000

        def current():
            standings = [item for item in self.store.scan("checkpoints") if item["id"].startswith("changes/standing/")]
            return len(standings) == CHANGES and all(int(standing.get("as_of", 0)) > since for standing in standings)

        until("every change to be counted", current, QUIET_WITHIN)


class Service:
    """One of our programs, by its name and its admin port."""

    def __init__(self, world, name, admin):
        self.world, self.name, self.admin = world, name, admin

    def readiness(self):
        """Status and text."""
        status, said = ask(f"{self.admin}/readyz")
        return status, str(said)

    def is_ready(self):
        if (code := self.world.running[self.name].poll()) is not None:
            raise Wrong(f"it ended with {code}; its log is {self.world.log(self.name)}")
        return self.readiness()[0] == 200

    def stop(self):
        self.world.stop(self.name)


class Load:
    """Likes and unlikes of random users, one in ten about the first post; one in twenty is said again a little later."""

    def __init__(self, world, events, rate, posts, users, seed=1):
        self.world, self.rate, self.posts, self.users = world, rate, posts, users
        self.left, self.said, self.draw = events, 0, random.Random(seed)
        self.recent = []
        options = [word for option in PRODUCER for word in ("--command-property", option)]
        options += ["--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"]
        command = [ENGINES, "produce", "--folder", world.folder / "engines", "--topic", "likes", *options]
        self.log = (world.folder / "producer.log").open("wb")
        words = [str(word) for word in command]
        self.producer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log)
        world.producers.append(self.producer)
        self.began = time.monotonic()

    def say(self, count=None):
        """Says so many of what is left, or all of it, at the rate; a producer that falls behind is not made to catch up."""
        count = min(self.left, count or self.left)
        began, first, batch = time.monotonic(), self.said, max(1, self.rate // 20)
        while self.said < first + count:
            for _ in range(min(batch, first + count - self.said)):
                self.producer.stdin.write(self.event())
                self.said += 1
            self.producer.stdin.flush()
            time.sleep(max(0.0, began + (self.said - first) / self.rate - time.monotonic()))
        self.left -= count

    def event(self):
        if self.recent and self.draw.random() < REPEATED:
            return self.draw.choice(self.recent)
        post = f"post-{1 if self.draw.random() < HOT else self.draw.randint(1, self.posts)}"
        action = "unlike" if self.draw.random() < UNLIKES else "like"
        user, at = f"user-{self.draw.randint(1, self.users)}", time.time_ns() // 1_000_000
        event = {"post_id": post, "user_id": user, "action": action, "ts": at, "event_id": str(self.said)}
        line = f"{post}\t{json.dumps(event)}\n".encode()
        self.recent = [*self.recent[-50:], line]
        return line

    def finish(self):
        """Waits until the producer has written everything."""
        self.producer.stdin.close()
        if self.producer.wait():
            raise Wrong(f"the producer failed: {self.log.name}")


def reader(api, posts):
    """Asks for counts of random posts, so that the cache has them; an answer that is late or refused is asked for again."""

    def work(over):
        draw = random.Random(2)
        while not over.wait(0.2):
            with contextlib.suppress(Wrong):
                counts_of(api, [f"post-{draw.randint(1, posts)}" for _ in range(100)])

    return work


def counts_of(api, ids, of="likes", **more):
    """What the API answers for some posts: their likes, or other counters."""
    status, said = ask(f"{api}/v1/{of}:batchGet", "POST", {"post_ids": ids, **more})
    if status != 200:
        raise Wrong(f"the API answers {status}: {said}")
    return said["counts"]


# ---- clients whose operations are noted as they were asked and answered: localstack/histories then asks Porcupine about them ----


PAUSE = 0.05  # seconds from an answer to the next request
USERS = 50
POSTS = [f"post-{n}" for n in range(30)]
GROWN = [f"grown-{n}" for n in range(5)]  # each like is of another user, and none is taken back
SOLO = [f"solo-{n}" for n in range(5)]  # all likes are of the user `solo`
CURRENT_WITHIN = 120  # seconds


class Clients:
    def __init__(self, apis):
        self.apis, self.new, self.operations, self.written = apis, itertools.count(), [], []

    def write(self, kind, post, user):
        operation = {"kind": kind, "post": post, "user": user, "call": time.time_ns()}
        path = f"{random.choice(self.apis)}/v1/posts/{post}"
        if kind == "view":
            status, said = ask(f"{path}/counters/views/events", "POST", {"action": "increment"})
        else:
            status, said = ask(f"{path}/likes/{user}", "PUT" if kind == "like" else "DELETE")
        if status == 202:
            operation["return"] = time.time_ns()
        elif status not in (503, 0):  # With these Kafka may have it even so, or get it later.
            raise Wrong(f"the API answers {status} to a {kind}: {said}")
        self.operations.append(operation)
        self.written.append((post, user))

    def read(self, posts, user):
        """The answers, or None where there are none: a read that fails says nothing."""
        called = time.time_ns()
        try:
            counts = counts_of(random.choice(self.apis), posts, "counters", counters=["likes", "views"], member=user)
        except Wrong:
            return None
        operation = {"kind": "read", "user": user, "call": called, "return": time.time_ns()}
        self.operations += [operation | {"post": count["post_id"]} | count for count in counts]
        return counts

    def writer(self, over):
        while not over.wait(PAUSE):
            kind = random.choices(("like", "unlike", "view"), (5, 4, 1))[0]
            # Some users act often, so that many writes of one row are close together.
            often = (random.choice(POSTS), f"user-{int(USERS * random.random() ** 3)}")
            post, user = random.choices((often, (random.choice(SOLO), "solo"), (random.choice(GROWN), f"new-{next(self.new)}")), (8, 1, 1))[0]
            self.write("like" if post in GROWN and kind == "unlike" else kind, post, user)

    def reader(self, over):
        """Asks for what was just written, and for others."""
        while not over.wait(PAUSE):
            if written := self.written[-200:]:
                post, user = random.choice(written)
                self.read([post, *random.sample(POSTS + GROWN + SOLO, 4)], user)

    def read_all(self, as_of):
        """Reads everything that was written, until the answers are of after that time."""
        posts = {}
        for post, user in self.written:
            posts.setdefault(user, set()).add(post)

        def current(user):
            counts = self.read(sorted(posts[user]), user)
            return counts and all(count["exact"] and count["as_of"] > as_of for count in counts)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda user: until(f"current answers for {user}", lambda: current(user), CURRENT_WITHIN), posts))


def revive(world):
    """Edits the table behind the pipeline's back: makes likes of tombstones, as late copies of likes would if an unlike left no tombstone."""

    def work(over):
        while not over.wait(1):
            if gone := [row for row in world.store.scan("likes") if "gone" in row]:
                key = {name: {"S": value} for name, value in random.choice(gone).items() if name in ("pk", "user_id")}
                values = {"ExpressionAttributeValues": {":at": {"N": "1"}}, "ConditionExpression": "attribute_exists(gone)"}
                # It may be a like again.
                with contextlib.suppress(Wrong):
                    world.store.ask("UpdateItem", {"TableName": "likes", "Key": key, "UpdateExpression": "SET liked_at = :at REMOVE gone", **values})

    return work


# ---- the judge: the log by Kafka's own consumer, tables by their protocol, the API over HTTP ------------------------------


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
    if wrong:
        raise Wrong("\n".join([f"{len(wrong)} differences:", *wrong[:LISTED]]))
    print(f"  events in the log       {len(records)}")
    print(f"  rows == fold of the log {len(rows)}")
    print(f"  counts == rows          {len(counters)} counters, {len(shards)} shards; so does the API answer, all exact", flush=True)


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
