"""What clients wrote and read while processes were killed and stopped, each operation as it was asked and answered. Porcupine, a
checker of linearizability that is not ours, judges it: `localstack/histories` is its input's only reader, and says what is lawful."""

import contextlib
import itertools
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib import Wrong, ask, run, until
from world import counts_of

CHECKER = Path(__file__).resolve().parents[1] / "histories"
WRITERS, READERS, PAUSE = 6, 3, 0.05
USERS = 50
POSTS = [f"post-{n}" for n in range(30)]
GROWN = [f"grown-{n}" for n in range(5)]  # each like is of another user
SOLO = [f"solo-{n}" for n in range(5)]  # with one user
AS_OF_WITHIN = 120


class History:
    def __init__(self, apis):
        self.apis, self.operations, self.written = apis, [], []
        self.new = itertools.count()

    def write(self, kind, post, user):
        """What was not acknowledged may be in Kafka even so, at once or later: its end is open."""
        path, called = f"{random.choice(self.apis)}/v1/posts/{post}", time.time_ns()
        if kind == "view":
            status, said = ask(f"{path}/counters/views/events", "POST", {"action": "increment"})
        else:
            status, said = ask(f"{path}/likes/{user}", "PUT" if kind == "like" else "DELETE")
        returned = time.time_ns()
        if status not in (202, 503, 0):
            raise Wrong(f"the API answers {kind}: {status} {said}")
        self.operations.append({"kind": kind, "post": post, "user": user, "call": called} | ({"return": returned} if status == 202 else {}))
        self.written.append((post, user))

    def read(self, posts, user):
        """The answers, if there are any: a read that fails says nothing."""
        called = time.time_ns()
        try:
            counts = counts_of(random.choice(self.apis), posts, "counters", counters=["likes", "views"], member=user)
        except Wrong:
            return None
        times = {"kind": "read", "user": user, "call": called, "return": time.time_ns()}
        names = ("counter", "value", "mine", "exact", "as_of")
        self.operations += [times | {"post": each["post_id"]} | {name: each[name] for name in names if name in each} for each in counts]
        return counts

    def writer(self, over):
        while not over.wait(PAUSE):
            kind = random.choices(("like", "unlike", "view"), (5, 4, 1))[0]
            # Some users act often, so that many writes of one row are close together.
            post, user = random.choice(POSTS), f"user-{int(USERS * random.random() ** 3)}"
            if random.random() < 0.2:
                post, user = random.choice([(random.choice(SOLO), "solo"), (random.choice(GROWN), f"new-{next(self.new)}")])
            self.write("like" if post in GROWN and kind == "unlike" else kind, post, user)

    def reader(self, over):
        """Asks mostly about what was just written."""
        while not over.wait(PAUSE):
            if written := self.written[-200:]:
                post, user = random.choice(written)
                self.read([post, *random.sample(POSTS + GROWN + SOLO, 4)], user)

    def works(self):
        return [self.writer] * WRITERS + [self.reader] * READERS

    def read_all(self, last):
        """Reads every row and counter that was written, until the answers are of after the last write."""
        posts = {}
        for post, user in self.written:
            posts.setdefault(user, set()).add(post)

        def current(user):
            counts = self.read(sorted(posts[user]), user)
            return counts and all(count["as_of"] > last for count in counts)

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda user: until(f"answers for {user} of after the last write", lambda: current(user), AS_OF_WITHIN), posts))


def revive(world):
    """The bug: makes likes of tombstones, as late copies of their likes would if an unlike left no tombstone."""

    def work(over):
        while not over.wait(1):
            row = random.choice([row for row in world.store.scan("likes") if "gone" in row] or [None])
            key = row and {name: {"S": row[name]} for name in ("pk", "user_id")}
            change = {"UpdateExpression": "SET liked_at = :at REMOVE gone", "ExpressionAttributeValues": {":at": {"N": "1"}}}
            # It may be a like by now.
            with contextlib.suppress(Wrong):
                world.store.ask("UpdateItem", {"TableName": "likes", "Key": key, "ConditionExpression": "attribute_exists(gone)", **change})

    return work


def checker(folder):
    """Builds the program that asks Porcupine."""
    run("go", "build", "-o", folder / "checker", ".", cwd=CHECKER)
    return folder / "checker"
