"""What is said, by Kafka's own producer; who reads meanwhile; and how late the counts are, seen from outside."""

import json
import random
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from world import ENGINES, Http, Wrong

POLL = 0.02  # seconds between two questions of a probe
GIVE_UP = 120
UNLIKES = 0.3
REPEATED = 0.05
HOT = 0.1
# Acknowledged by all, in order, and tried for as long as the broker is away.
PRODUCER = ("retries=2147483647", "delivery.timeout.ms=2147483647", "linger.ms=5")


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


class Beside:
    """Works in threads of their own, until the block ends; whatever went wrong in one is raised then."""

    def __init__(self, *works):
        self.works, self.over, self.pool = works, threading.Event(), ThreadPoolExecutor(len(works))

    def __enter__(self):
        self.under_way = [self.pool.submit(work, self.over) for work in self.works]
        return self

    def __exit__(self, *_):
        self.over.set()
        for work in self.under_way:
            work.result()


def reader(api, posts):
    """Asks for counts of random posts, so that the cache has them; an answer that is late or refused is asked for again."""

    def work(over):
        link, draw = Http(api), random.Random(2)
        while not over.wait(0.2):
            ids = [f"post-{draw.randint(1, posts)}" for _ in range(100)]
            try:
                counts_of(link, ids)
            except (OSError, Wrong):
                pass

    return work


def counts_of(link, ids, of="likes", **more):
    """What the API answers for some posts: their likes, or other counters."""
    headers = {"content-type": "application/json"}
    status, text = link.ask("POST", f"/v1/{of}:batchGet", json.dumps({"post_ids": ids, **more}), headers)
    if status != 200:
        raise Wrong(f"the API answers {status}: {text}")
    return json.loads(text)["counts"]


class Probes:
    """Each has a post of its own: likes or unlikes it through the API, and asks, from Kafka's acknowledgement on, until
    the count shows it."""

    def __init__(self, api, count):
        self.api, self.spans = api, []
        self.works = [lambda over, post=f"probe-{n}": self.probe(post, over) for n in range(1, count + 1)]

    def probe(self, post, over):
        link, liked = Http(self.api), False
        say = lambda: self.answer(link, "PUT" if liked else "DELETE", f"/v1/posts/{post}/likes/probe")[0]
        while not over.wait(random.uniform(0.5, 1.5)):
            liked = not liked
            while not over.is_set() and say() != 202:
                time.sleep(0.1)
            if over.is_set():
                return
            acknowledged = time.monotonic()
            while not self.shows(link, post, liked):
                if time.monotonic() - acknowledged > GIVE_UP:
                    raise Wrong(f"{post} does not show within {GIVE_UP} s what Kafka acknowledged")
                time.sleep(POLL)
            self.spans.append(time.monotonic() - acknowledged)

    def shows(self, link, post, liked):
        status, text = self.answer(link, "GET", f"/v1/posts/{post}/likes")
        return status == 200 and json.loads(text)["likes"] == int(liked)

    @staticmethod
    def answer(link, method, path):
        try:
            return link.ask(method, path)
        except OSError:
            return 0, ""

    def __str__(self):
        spans = sorted(self.spans)
        if not spans:
            return "never measured"
        at = lambda share: spans[min(len(spans) - 1, int(share * len(spans)))] * 1000
        return f"p50 {at(0.5):.0f} ms, p99 {at(0.99):.0f} ms, longest {at(1):.0f} ms ({len(spans)} samples)"
