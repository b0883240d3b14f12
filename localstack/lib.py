#!/usr/bin/env python3
"""What scripts share: processes, engines, ports, requests, tables without an SDK, topics, events, and checks by name."""

import contextlib
import csv
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tally"
ENGINES = ROOT / "localstack/engines"
TABLES = ROOT / "adapters/src/dynamodb/tables.json"
STOPPED_WITHIN = 40  # seconds
LACKING = (69, 77)  # what scripts end with where something has to be installed first


class Wrong(Exception):
    """What was found; the message says it."""


class Skipped(Exception):
    """The machine cannot do it; the message says what it lacks."""


def until(what, done, within=60):
    """Repeats `done` until it is true; what it then is."""
    deadline = time.monotonic() + within
    while not (found := done()):
        if time.monotonic() > deadline:
            raise Wrong(f"waited {within} s for {what}")
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def scratch(prefix):
    """A folder for what a script writes. One that has failed leaves it behind."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    except Skipped:
        shutil.rmtree(folder)
        raise
    except BaseException:
        print(f"what it left is in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def told(error):
    """What a failure says. If it came up while another one was handled, that one stands first."""
    context = [] if error.__suppress_context__ or not error.__context__ else traceback.format_exception_only(error.__context__)
    return "".join([*context, str(error)])


def script(main):
    """Runs a script, and ends it with 0 if all is well, 1 if something is wrong, or 69 if something has to be installed first."""
    # A night that is stopped ends its steps so: what they have started is to be ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Skipped as error:
        print(error)
        sys.exit(69)
    except Wrong as error:
        print(told(error), file=sys.stderr)
        sys.exit(1)


def seconds(span):
    """The length of a span such as `5m` or `1h30m`."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
    return sum(float(count) * units[unit] for count, unit in re.findall(r"(\d+)(ms|[smhdwy])", span))


# ---- processes ---------------------------------------------------------------------------------------------------------


def run(*command, good=(0,), lacking=(), input=None, timeout=None, **options):
    """A command from its start to its end; what it printed. With an exit code of `lacking` it says what this machine lacks."""
    words, pipe = [str(word) for word in command], subprocess.PIPE
    with subprocess.Popen(words, stdin=None if input is None else pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            said, errors = process.communicate(input, timeout)
        except BaseException:
            # It is told to end, and has time to stop what it has started.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            raise
    if process.returncode in lacking:
        raise Skipped(["it does not say what is missing", *(said + errors).strip().splitlines()][-1])
    if process.returncode not in good:
        tail = "\n".join((said + errors).strip().splitlines()[-20:])
        raise Wrong(f"{' '.join(words[:8])} ended with {process.returncode}:\n{tail}")
    return said


def clean(environment=None):
    """This environment without variables that the programs read, and with those that are given."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TALLY_", "AWS_"))} | (environment or {})


def programs(*profile):
    """The folder with the programs, which are built where TALLY_TEST_BIN does not name it."""
    if folder := os.environ.get("TALLY_TEST_BIN"):
        return Path(folder).resolve()
    subprocess.run(["cargo", "build", "--locked", "--workspace", "--bins", *profile], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / ("release" if "--release" in profile else "debug")


class Processes:
    """Programs by name, each with a log in one folder, and ended by their own ids."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, *command, environment=None):
        words = [str(word) for word in command]
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(words, env=clean(environment), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def log(self, name):
        return self.folder / f"{name}.log"

    def alive(self):
        """Fails if a process has ended."""
        for name, process in self.running.items():
            if process.poll() is not None:
                tail = "\n".join(self.log(name).read_text(errors="replace").splitlines()[-10:])
                raise Wrong(f"{name} ended with {process.returncode}: {tail}")

    def until(self, what, done, within=600):
        """As `until`, while every process runs."""
        return until(what, lambda: (self.alive(), done())[1], within)

    def signal(self, name, number):
        self.running[name].send_signal(number)

    def kill(self, name):
        """As a crash would."""
        process = self.running.pop(name)
        if process.poll() is not None:
            raise Wrong(f"{name} had ended with {process.returncode} before it was killed; its log is {self.log(name)}")
        process.kill()
        process.wait()

    def stop(self, name):
        """Tells a process to end; what is wrong with how it did."""
        process = self.running.pop(name)
        if process.poll() is None:
            process.terminate()
            # One that stands still is not told before it goes on.
            process.send_signal(signal.SIGCONT)
        try:
            code = process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{self.log(name)} does not end within {STOPPED_WITHIN} s"
        return f"{self.log(name)} ends with {code}" if code else None

    def end(self):
        """Stops every process, the last one that was started first: what others write to goes last."""
        return list(filter(None, map(self.stop, reversed(list(self.running)))))


# ---- ports and requests ------------------------------------------------------------------------------------------------


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def free_port():
    return free_ports(1)[0]


def ask(url, method="GET", body=None, headers=None, timeout=30):
    """Status and answer, which is JSON where it looks so; 0 where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in (b"[", b"{") else text.decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def metrics(admin):
    """(name with labels, value) of each series of a service."""
    status, text = ask(f"{admin}/metrics")
    lines = text.splitlines() if status == 200 else []
    return [(name, float(value)) for name, _, value in (line.rpartition(" ") for line in lines if line and line[0] != "#")]


class Postgres:
    """PostgreSQL at a socket in a folder, without fsync. It refuses to run as root."""

    def __init__(self, folder):
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found or not shutil.which("psql"):
            raise Skipped("PostgreSQL's server is not installed: apt-get install postgresql")
        self.programs, self.data = found[-1].parent, folder / "pg"
        self.variables = {"PGHOST": str(folder), "PGDATABASE": "postgres", "PGUSER": "postgres"}
        self.environment = os.environ | self.variables
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        folder.chmod(0o755)
        self.control("initdb", "-U", "postgres", "-A", "trust", "--locale", "C", "--no-sync")
        # Not a flag of the server, which nothing could change while it runs.
        (self.data / "conf").write_text("fsync = off\n")
        run("sh", "-c", f"cat {self.data}/conf >> {self.data}/postgresql.conf")
        self.control("pg_ctl", "-w", "-l", folder / "pg.log", "-o", f"-c listen_addresses= -k {folder}", "start")

    def control(self, program, *words):
        as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        run(*as_postgres, self.programs / program, "-D", self.data, *words)

    def sql(self, text):
        return run("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", input=text, env=self.environment)


class Stage(Processes):
    """Processes, engines and a PostgreSQL, with a folder. All of it ends with the block; what has failed leaves its folder."""

    def __init__(self, binaries, prefix):
        super().__init__(Path(tempfile.mkdtemp(prefix=prefix)))
        self.binaries, self.engine_folders, self.database = binaries, [], None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        for folder in self.engine_folders:
            run(ENGINES, "down", "--folder", folder, good=range(256))
        if self.database:
            self.database.control("pg_ctl", "-m", "immediate", "stop")
        if kind in (None, Skipped):
            shutil.rmtree(self.folder)
        else:
            print(f"what it left is in {self.folder}", file=sys.stderr)

    def start_engines(self, name, *words):
        """Starts engines in a folder of this name; what they export."""
        self.engine_folders.append(self.folder / name)
        said = run(ENGINES, "up", "--folder", self.folder / name, "--any-ports", *words, lacking=LACKING)
        return dict(word.split("=", 1) for word in shlex.split(said, comments=True) if "=" in word)

    def postgres(self):
        self.database = Postgres(self.folder)
        return self.database

    def stack(self, *flags, brokers=None, binaries=None):
        """Starts a local stack as the process `stack`, and says where it is."""
        api, admin, tables, kafka = free_ports(4)
        self.api, self.admin, self.tables = (f"http://127.0.0.1:{port}" for port in (api, admin, tables))
        self.brokers = brokers or f"127.0.0.1:{kafka}"
        ports = ["--api-port", api, "--admin-listen", f"127.0.0.1:{admin}", "--dynamodb-port", tables, "--kafka-port", kafka]
        self.start("stack", (binaries or self.binaries) / "tally-localstack", *ports, *(["--brokers", brokers] if brokers else []), *flags)
        access = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        # Of the operators' command.
        self.environment = access | {"AWS_ENDPOINT_URL": self.tables, "TALLY_BROKERS": self.brokers, "TALLY_OPERATOR": "check"}
        self.until("the local stack's metrics", lambda: metrics(self.admin))


class Store:
    """DynamoDB's protocol, and the control routes of the emulator."""

    def __init__(self, endpoint, prefix=""):
        self.endpoint, self.prefix = endpoint, prefix

    def ask(self, operation, body, tries=1):
        signed = "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"x-amz-target": f"DynamoDB_20120810.{operation}", "authorization": signed}
        status, said = ask(self.endpoint, "POST", body, headers, timeout=120)
        if status == 200:
            return json.loads(said) if isinstance(said, str) and said else said
        if tries == 1:
            raise Wrong(f"{operation}: {status} {said}")
        time.sleep(0.1)
        return self.ask(operation, body, tries - 1)

    def create(self, table):
        table = json.loads(json.dumps(table).replace("${TablePrefix}", self.prefix))
        expiry = table.pop("TimeToLiveSpecification", None)
        if "StreamSpecification" in table:
            table["StreamSpecification"]["StreamEnabled"] = True
        self.ask("CreateTable", table)
        if expiry:
            self.ask("UpdateTimeToLive", {"TableName": table["TableName"], "TimeToLiveSpecification": expiry})

    def create_tables(self):
        for table in json.loads(TABLES.read_text()):
            self.create(table)

    def scan(self, table, **more):
        """Every item of a table, read consistently, each attribute without its type."""
        request = {"TableName": self.prefix + table, "ConsistentRead": True, **more}
        while request:
            page = self.ask("Scan", request)
            for item in page["Items"]:
                yield {name: next(iter(value.values())) for name, value in item.items()}
            after = page.get("LastEvaluatedKey")
            request = {**request, "ExclusiveStartKey": after} if after else None

    def drift(self, post, by, tries=1):
        """Makes a count wrong, as no service would."""
        key = {"TableName": f"{self.prefix}like_counts", "Key": {"post_id": {"S": post}}}
        item = self.ask("GetItem", {**key, "ConsistentRead": True}, tries)["Item"]
        shard = next(name for name in item if name.startswith("s") and name[1:].isdigit())
        update = {"UpdateExpression": f"ADD {shard} :by, likes :by", "ExpressionAttributeValues": {":by": {"N": str(by)}}}
        self.ask("UpdateItem", {**key, **update}, tries)

    def control(self, route, body=None):
        status, said = ask(f"{self.endpoint}/_control/{route}", "GET" if body is None else "POST", body)
        if status != 200:
            raise Wrong(f"/_control/{route}: {status} {said}")
        return said


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


class Pipeline(Stage):
    """Services as processes over an emulated DynamoDB and the Kafka of a local stack. Tables have a prefix."""

    def __init__(self, name, prefix):
        super().__init__(programs(), f"tally-{name}-")
        kafka, tables, self.page = free_ports(3)
        self.brokers, self.store = f"127.0.0.1:{kafka}", Store(f"http://127.0.0.1:{tables}", prefix)

    def begin(self, *topics, emulator=()):
        ports = ["--kafka-port", self.brokers.rpartition(":")[2], "--dynamodb-port", 0, "--api-port", self.page]
        self.start("kafka", self.binaries / "tally-localstack", "--no-load", *ports, "--admin-listen", "off")
        port = self.store.endpoint.rpartition(":")[2]
        self.start("tables", self.binaries / "tally-emulator", "--port", port, "--control", "--shards", 2, *emulator)
        until("the tables", lambda: ask(self.store.endpoint)[0] == 200)
        until("Kafka", lambda: ask(f"http://127.0.0.1:{self.page}/v1/posts/p/likes")[0] == 200)
        self.store.create_tables()
        create_topics(self.brokers, *topics)

    def environment(self, key, **more):
        keys = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "any"}
        return {"TALLY_TABLE_PREFIX": self.store.prefix, **keys, **more}


def create_topics(brokers, *names):
    """Asks the local stack's Kafka what topics it has (Metadata, version 4): those that are named and not there are created."""
    named = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    request = struct.pack(">hhih6si", 3, 4, 1, 6, b"script", len(names)) + named + b"\x01"
    host, _, port = brokers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as kafka:
        kafka.sendall(struct.pack(">i", len(request)) + request)
        kafka.recv(4)


# ---- events ----------------------------------------------------------------------------------------------------------


def likes(events, posts, users):
    """Random events as lines of CSV, the same for the same numbers: three of ten are unlikes. With 0 users each is a like of another user."""
    draw = random.Random(posts)
    yield "post_id,user_id,action,ts"
    for n in range(events):
        post, user, action = draw.randrange(posts), n, "like"
        if users:
            user, action = draw.randrange(users), "unlike" if draw.random() < 0.3 else "like"
        yield f"post-{post},user-{user},{action},{1500000000000 + n}"


def keyed(file):
    """Events of a CSV file as Kafka's console producer takes them, keyed by their post."""
    for row in csv.DictReader(file):
        yield f"{row['post_id']}\t" + json.dumps(row | {"ts": int(row["ts"])})


# ---- checks ------------------------------------------------------------------------------------------------------------


def tools(name, packages):
    """The folder with the commands of these packages of PyPI, which are fetched once."""
    folder = CACHE / name
    stamp = folder / "complete"
    if not stamp.exists() or stamp.read_text().splitlines() != packages:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            run(sys.executable, "-m", "venv", folder)
            run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", *packages)
        except Wrong as error:
            raise Skipped(str(error).splitlines()[-1]) from None
        stamp.write_text("\n".join(packages))
    return folder / "bin"


def need(program, package=None):
    if not shutil.which(program):
        raise Skipped(f"{program} is not installed: apt-get install {package or program}")


def need_docker():
    for words in (["version"], ["compose", "version"]):
        if not shutil.which("docker") or subprocess.run(["docker", *words], capture_output=True, check=False).returncode:
            raise Skipped("no Docker engine answers, or it has no compose")


def require(**packages):
    """Ends the script with 69 if one of these programs, each with its package, or PyYAML is not installed."""
    missing = [package for program, package in packages.items() if not shutil.which(program.replace("_", "-"))]
    missing += ["python3-yaml"] * (not importlib.util.find_spec("yaml"))
    if missing:
        print(f"not installed: apt-get install {' '.join(missing)}")
        sys.exit(69)


def checks_of(names):
    """The functions `check_..` among the names of a script, in their order."""
    return [check for name, check in names.items() if name.startswith("check_")]


def name_of(check):
    return check.__name__.removeprefix("check_").replace("_", " ")


def run_checks(checks, words=()):
    """Runs the checks whose names have one of the words, all without any; the exit code. What a check returns is shown."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for check in checks:
        name, began, said = name_of(check), time.monotonic(), ""
        if words and not any(word in name for word in words):
            continue
        try:
            outcome, said = "passed", check() or ""
        except Skipped as error:
            outcome, said = "skipped", error
        except Wrong as error:
            outcome, said = "failed", f"\n{told(error)}"
        except Exception:  # noqa: BLE001 - a check that breaks has failed, and the others are still run
            outcome, said = "failed", f"\n{traceback.format_exc()}"
        count[outcome] += 1
        print(f"{outcome} {name}{f': {said}' if str(said) else ''} ({time.monotonic() - began:.1f} s)", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in count.items()))
    return 1 if count["failed"] or not any(count.values()) else 0
