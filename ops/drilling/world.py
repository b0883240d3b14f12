"""The pipeline as processes on this machine, and what can be done to it."""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = ROOT / "adapters/src/dynamodb/tables.json"
# The Kafka is that of a local stack, whose own consumer has the group without a prefix.
PREFIX = "drill-"
LIKES, COUNTS = (f"{PREFIX}{name}" for name in ("likes", "like_counts"))
# The local stack has lists of its own, in topics without a prefix.
CHANGES, BOARDS = f"{PREFIX}changes", f"{PREFIX}boards"
POSTS = 10
WITHIN = 60


class Wrong(Exception):
    """What keeps the drill from going on."""


def until(what, done, within=WITHIN):
    """Repeats `done` until it is true."""
    deadline = time.monotonic() + within
    while not (found := done()):
        if time.monotonic() > deadline:
            raise Wrong(f"waited {within} s for {what}")
        time.sleep(0.2)
    return found


def free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url, method="GET", body=None, headers=None):
    """Status and answer; 0 where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in (b"[", b"{") else text.decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


class World:
    """Every process of the drill by name, the ports they have, and a load of likes."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.processes, self.stopped = binaries, folder, {}, set()
        self.ports = {name: free() for name in ("kafka", "page", "tables", "redis", "api", "prometheus")}
        self.admin = {name: free() for name in ("consumer", "change-streamer", "batch-recount", "count-api", "trends")}
        self.canary = free()
        self.brokers = f"127.0.0.1:{self.ports['kafka']}"
        self.tables = f"http://127.0.0.1:{self.ports['tables']}"
        self.api = f"http://127.0.0.1:{self.ports['api']}/v1"
        self.load = Load(self)
        # The post that a fault has chosen, for its end.
        self.wrong = None

    def begin(self):
        page = self.ports["page"]
        kafka = ["--no-load", "--kafka-port", self.ports["kafka"], "--dynamodb-port", 0, "--api-port", page, "--admin-listen", "off"]
        self.start("kafka", self.binaries / "tally-localstack", *kafka)
        self.start("tables", self.binaries / "tally-emulator", "--port", self.ports["tables"], "--control", "--shards", 2)
        self.start_redis()
        until("the tables", lambda: ask(self.tables)[0] == 200)
        until("Kafka", lambda: ask(f"http://127.0.0.1:{page}/v1/posts/p/likes")[0] == 200)
        for table in json.loads(TABLES.read_text()):
            table["TableName"] = table["TableName"].replace("${TablePrefix}", PREFIX)
            expiry = table.pop("TimeToLiveSpecification", None)
            if "StreamSpecification" in table:
                table["StreamSpecification"]["StreamEnabled"] = True
            self.root("CreateTable", table)
            if expiry:
                self.root("UpdateTimeToLive", {"TableName": table["TableName"], "TimeToLiveSpecification": expiry})
        self.create_topics(CHANGES, BOARDS)
        for name in self.admin:
            self.start_service(name)
        for name in self.admin:
            until(f"{name} to be ready", lambda name=name: self.is_ready(name))
        # A round that takes longer than the shortened rules remember would be none.
        canary = ["--every", "1", "--within", "3", "--listen", f"127.0.0.1:{self.canary}"]
        self.start("canary", self.binaries / "tally", "canary", f"http://127.0.0.1:{self.ports['api']}", *canary)
        self.load.start()

    def is_ready(self, name):
        return ask(f"http://127.0.0.1:{self.admin[name]}/readyz")[0] == 200

    def metrics(self, name):
        return ask(f"http://127.0.0.1:{self.admin[name]}/metrics")[1]

    # ---- processes -------------------------------------------------------------------------------------------------

    def start(self, name, *command, environment=None):
        log = (self.folder / f"{name}.log").open("ab")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TALLY_", "AWS_"))}
        words = [str(word) for word in command]
        pipes = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        self.processes[name] = subprocess.Popen(words, env={**clean, **(environment or {})}, **pipes)

    def start_redis(self):
        self.start("redis", "redis-server", "--port", self.ports["redis"], "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")

    def start_service(self, name):
        kafka, redis = ["--brokers", self.brokers], ["--redis", f"redis://127.0.0.1:{self.ports['redis']}"]
        flags = {
            "consumer": kafka,
            "change-streamer": [*redis, "--poll-idle", "200ms", "--discover", "2s", *kafka, "--changes-topic", CHANGES],
            "batch-recount": ["--watch", *kafka, "--changes-topic", CHANGES],
            "count-api": [*kafka, *redis, "--listen", f"127.0.0.1:{self.ports['api']}", "--write-rate", "0", "--boards-topic", BOARDS],
            # As few keys as may be, so that a flood of them is a small one.
            "trends": [*kafka, "--changes-topic", CHANGES, "--boards-topic", BOARDS, "--windows", "1m,1h", "--max-keys", "10000"],
        }[name]
        admin = ["--admin-listen", f"127.0.0.1:{self.admin[name]}"]
        self.start(name, self.binaries / f"tally-{name}", *admin, *flags, environment=self.environment())

    def environment(self):
        keys = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "drill", "AWS_SECRET_ACCESS_KEY": "any"}
        # Few row keys, so that an audit under load takes seconds.
        return {"AWS_ENDPOINT_URL": self.tables, "TALLY_TABLE_PREFIX": PREFIX, "TALLY_SHARDS": "4", **keys}

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def freeze(self, name):
        self.processes[name].send_signal(signal.SIGSTOP)
        self.stopped.add(name)

    def thaw(self, name):
        self.processes[name].send_signal(signal.SIGCONT)
        self.stopped.discard(name)

    def run(self, program, *flags, good=(0,)):
        """An operator's command, from its start to its end."""
        self.command(program, "--admin-listen", "off", *flags, good=good)

    def operate(self, *words):
        """A change by the operators' command."""
        self.command("tally", *words, "--yes", "--why", "the drill", "--operator", "drill")

    def command(self, program, *flags, good=(0,)):
        command = [str(self.binaries / program), *map(str, flags)]
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TALLY_", "AWS_"))}
        done = subprocess.run(command, env={**clean, **self.environment()}, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode not in good:
            raise Wrong(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout

    def end(self):
        self.load.stop()
        for name in list(self.stopped):
            self.thaw(name)
        # What others write to and read from goes last.
        engines = {"kafka", "tables", "redis"}
        for names in (set(self.processes) - engines, engines & set(self.processes)):
            for name in names:
                self.processes[name].terminate()
            for name in names:
                try:
                    self.processes[name].wait(30)
                except subprocess.TimeoutExpired:
                    self.processes[name].kill()

    # ---- the store and the log -------------------------------------------------------------------------------------

    def root(self, operation, body):
        """A request to the tables, past all services."""
        signed = "AWS4-HMAC-SHA256 Credential=drill/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"x-amz-target": f"DynamoDB_20120810.{operation}", "authorization": signed}
        for _ in range(50):
            status, said = ask(self.tables, "POST", body, headers)
            if status == 200:
                return json.loads(said) if isinstance(said, str) and said else said
            # A fault that is in force may be for this request too.
            time.sleep(0.1)
        raise Wrong(f"{operation}: {status} {said}")

    def control(self, route, body):
        status, said = ask(f"{self.tables}/_control/{route}", "POST", body)
        if status != 200:
            raise Wrong(f"/_control/{route}: {status} {said}")
        return said

    def fault(self, *rules):
        self.control("fault", {"rules": list(rules)})

    def drift(self, post, by):
        """Makes a count wrong, as no service would."""
        key = {"post_id": {"S": post}}
        item = self.root("GetItem", {"TableName": COUNTS, "Key": key, "ConsistentRead": True})["Item"]
        shard = next(name for name in item if name.startswith("s") and name[1:].isdigit())
        values = {":by": {"N": str(by)}}
        update = {"UpdateExpression": f"ADD {shard} :by, likes :by", "ExpressionAttributeValues": values}
        self.root("UpdateItem", {"TableName": COUNTS, "Key": key, **update})

    def say(self, value, partition=None, topic="likes"):
        """Puts records into a partition, whatever their keys say, or into those that they say."""
        where = ["-X", "partitioner=murmur2_random"] if partition is None else ["-p", str(partition)]
        command = ["kcat", "-b", self.brokers, "-P", "-t", topic, *where, "-K", "\t"]
        subprocess.run(command, input=value, text=True, check=True, capture_output=True, timeout=30)

    def create_topics(self, *names):
        """Asks Kafka of what topics it has (Metadata, version 4): those that are named and not there are created."""
        named = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
        request = struct.pack(">hhih5si", 3, 4, 1, 5, b"drill", len(names)) + named + b"\x01"
        with socket.create_connection(("127.0.0.1", self.ports["kafka"]), timeout=10) as kafka:
            kafka.sendall(struct.pack(">i", len(request)) + request)
            kafka.recv(4)

    def like(self, post, user):
        return ask(f"{self.api}/posts/{post}/likes/{user}", "PUT")[0] == 202

    def recount(self, body):
        return ask(f"http://127.0.0.1:{self.admin['batch-recount']}/v1/recounts", "POST", body)[0] in (200, 202)


class Load:
    """Likes and reads, some of each every second, for as long as the drill takes."""

    def __init__(self, world):
        self.world, self.going, self.threads = world, True, []
        # Whether posts are read that are in no cache, so that each read is one of the table.
        self.uncached = False

    def start(self):
        for work in (self.write, self.read, self.listen):
            self.threads.append(threading.Thread(target=work, daemon=True))
            self.threads[-1].start()

    def write(self):
        draw = random.Random(1)
        while self.going:
            self.world.like(f"post-{draw.randrange(POSTS)}", f"user-{draw.randrange(100000)}")
            time.sleep(0.1)

    def read(self):
        draw = random.Random(2)
        while self.going:
            post = f"new-{draw.randrange(10**9)}" if self.uncached else f"post-{draw.randrange(POSTS)}"
            ask(f"{self.world.api}/posts/{post}/likes")
            time.sleep(0.05)

    def listen(self):
        while self.going:
            try:
                with urllib.request.urlopen(f"{self.world.api}/posts/post-1/likes:stream", timeout=5) as stream:
                    while self.going and stream.readline():
                        pass
            except OSError:
                time.sleep(1)

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(15)
