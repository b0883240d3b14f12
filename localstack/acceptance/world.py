"""What a scenario runs on: real engines and the services over them, each a process of its own, all gone at its end."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ROOT / "localstack/engines"
SERVICES = ("tally-consumer", "tally-change-streamer", "tally-batch-recount", "tally-count-api")
BINARIES = (*SERVICES, "tally-emulator", "tally-localstack", "tally")
CHANGES = 12  # partitions of the log of changes
READY_WITHIN = 120  # seconds
QUIET_WITHIN = 900
STOPPED_WITHIN = 40


class Wrong(Exception):
    """What a scenario found."""


class World:
    """Apache Kafka, Redis alone or as a cluster, and the emulator or ministack; with tables, and without services."""

    binaries = Path()

    def __init__(self, partitions=12, cluster=False, ministack=False):
        self.folder = Path(tempfile.mkdtemp(prefix="tally-acceptance-"))
        self.processes, self.producers = {}, []
        try:
            only = "kafka,ministack" if ministack else "kafka"
            only += "" if cluster else ",redis"
            wanted = ["--any-ports", "--only", only, "--topics", f"likes:{partitions},likes.dlq:1,changes:{CHANGES}"]
            exports = self.engines("up", *wanted, *(["--redis-cluster"] if cluster else []))
            said = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines() if "export " in line)
            self.brokers = said["TALLY_BROKERS"]
            self.redis = said["TALLY_TEST_REDIS_CLUSTER" if cluster else "TALLY_REDIS"]
            endpoint = said["TALLY_DYNAMODB_ENDPOINT"] if ministack else self.emulator()
            self.store = Store(endpoint)
            self.environment = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            }
            self.create_tables(endpoint)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        """Ends everything. How each process ended is part of what a scenario judges."""
        for producer in self.producers:
            producer.kill()
        ends = [process.stop() for process in reversed(list(self.processes.values()))]
        self.engines("down")
        wrong = [end for end in ends if end]
        if any(failure) or wrong:
            print("\n".join([f"logs are in {self.folder}", *wrong]), flush=True)
        else:
            shutil.rmtree(self.folder)
        if wrong and not any(failure):
            raise Wrong(f"{len(wrong)} processes ended as they should not")

    def engines(self, command, *arguments, **options):
        """One of the engines' commands; what it printed."""
        return run([ENGINES, command, "--folder", self.folder / "engines", *arguments], **options)

    def emulator(self):
        port = free_port()
        self.start("tally-emulator", "--control", "--port", port, environment={}, ready=lambda _: listens(port))
        return f"http://127.0.0.1:{port}"

    def create_tables(self, endpoint):
        """The local stack creates the tables that it does not find."""
        ports = [word for name in ("kafka", "dynamodb", "api") for word in (f"--{name}-port", "0")]
        command = [self.binaries / "tally-localstack", *ports, "--admin-listen", "off", "--no-load", "--duration", "1s"]
        run([*command, "--brokers", self.brokers, "--dynamodb-endpoint", endpoint])

    def start(self, binary, *arguments, name=None, environment=None, ready=None):
        """A process, once it is ready."""
        name, admin = name or binary, free_port()
        if environment is None:
            environment = self.environment
            arguments = (*arguments, "--admin-listen", f"127.0.0.1:{admin}", "--log-format", "json")
        command = [self.binaries / binary, *arguments]
        if self.processes.get(name) and not self.processes[name].was_killed:
            raise Wrong(f"there is a {name} already")
        process = self.processes[name] = Process(command, self.folder / f"{name}.log", environment, admin)
        until(f"{name}, whose log is {process.log}", lambda: (ready or Process.is_ready)(process), READY_WITHIN)
        return process

    def consumer(self, name, ready=None):
        return self.start("tally-consumer", "--brokers", self.brokers, name=name, ready=ready)

    def streamer(self, name):
        return self.start("tally-change-streamer", "--brokers", self.brokers, "--redis", self.redis, name=name)

    def recount(self):
        """Everything, once."""
        command = [self.binaries / "tally-batch-recount", "--brokers", self.brokers, "--admin-listen", "off"]
        run(command, env={**os.environ, **self.environment})

    def api(self):
        """The API; its port."""
        port = free_port()
        arguments = ["--brokers", self.brokers, "--redis", self.redis, "--listen", f"127.0.0.1:{port}", "--write-rate", "0"]
        self.start("tally-count-api", *arguments)
        return port

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


class Process:
    """One of our binaries; ended by its own id."""

    def __init__(self, command, log, environment, admin):
        self.log, self.admin, self.was_killed = log, admin, False
        with log.open("ab") as file:
            words = [str(word) for word in command]
            self.child = subprocess.Popen(words, env={**os.environ, **environment}, stdout=file, stderr=file)

    def get(self, path):
        return Http(self.admin).get(path)

    def is_ready(self):
        if self.child.poll() is not None:
            raise Wrong(f"it ended with {self.child.returncode}; its log is {self.log}")
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def kill(self):
        if self.child.poll() is not None:
            raise Wrong(f"it had ended with {self.child.returncode} before it was killed; its log is {self.log}")
        self.was_killed = True
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def stop(self):
        """What is wrong with how it ended; one that was killed may have ended as it did."""
        if self.was_killed:
            return None
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOPPED_WITHIN)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
                return f"{self.log} does not end within {STOPPED_WITHIN} s"
        return f"{self.log} ends with {self.child.returncode}" if self.child.returncode else None


class Http:
    """A connection to a port of this machine, made again when it was lost."""

    def __init__(self, port, timeout=30):
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def get(self, path):
        return self.ask("GET", path)

    def ask(self, method, path, body=None, headers=None):
        """Status and text; an `OSError` where there was no answer."""
        try:
            self.link.request(method, path, body, headers or {})
            answer = self.link.getresponse()
            return answer.status, answer.read().decode()
        except (http.client.HTTPException, OSError) as error:
            self.link.close()
            raise ConnectionError(error) from error


class Store:
    """DynamoDB's protocol and the emulator's control routes, as far as a scenario needs them."""

    SIGNED = "AWS4-HMAC-SHA256 Credential=test/20240101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"

    def __init__(self, endpoint):
        self.port = int(endpoint.rsplit(":", 1)[1])

    def control(self, route, **request):
        status, text = Http(self.port).ask("POST", f"/_control/{route}", json.dumps(request), {"content-type": "application/json"})
        if status != 200:
            raise Wrong(f"the emulator answers {status} to {route}: {text}")
        return json.loads(text)

    def slow(self, milliseconds):
        """Has rows take so long from now on."""
        latency = {"fault": {"latency": {"min_ms": milliseconds, "max_ms": milliseconds}}, "table": "likes"}
        self.control("fault", rules=[{**latency, "operation": "BatchExecuteStatement"}])

    def scan(self, table):
        """Every item, read consistently."""
        link, request = Http(self.port, timeout=120), {"TableName": table, "ConsistentRead": True}
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "DynamoDB_20120810.Scan"}
        while request:
            status, text = link.ask("POST", "/", json.dumps(request), {**headers, "authorization": self.SIGNED})
            page = json.loads(text)
            if status != 200:
                raise Wrong(f"{table} cannot be read: {text}")
            for item in page["Items"]:
                yield {name: next(iter(value.values())) for name, value in item.items()}
            after = page.get("LastEvaluatedKey")
            request = {**request, "ExclusiveStartKey": after} if after else None


def build():
    """Builds the binaries; the folder they are in."""
    packages = [word for name in BINARIES for word in ("-p", "tally-cli" if name == "tally" else name)]
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", *packages, "--bins"], cwd=ROOT, check=True)
    about = run(["cargo", "metadata", "--format-version", "1", "--no-deps"])
    return Path(json.loads(about)["target_directory"]) / "release"


def run(command, expected=0, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, **options)
    if done.returncode != expected:
        raise Wrong(f"{Path(command[0]).name} {command[1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def until(what, done, within):
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            raise Wrong(f"waited {within} s for {what}")
        time.sleep(0.1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
