"""Clients that write and read, and note each operation as it was asked and answered. `localstack/histories` then asks Porcupine
whether the answers were lawful."""

import contextlib
import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor

from lib import Wrong, ask, until
from world import counts_of

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
