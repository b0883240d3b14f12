#!/usr/bin/env python3
"""Two builds of the API beside each other: a hot GET of one post's likes, by turns, under wrk.

    count-api/beside.py BEFORE AFTER [rounds, default 12] [seconds, default 5]

BEFORE and AFTER are folders with `tally-count-api` and `examples/stage` of each build, in one profile. Both run all the time, with a
redis-server each, on one core; the load has another. A pair of runs gives one ratio of requests a second and one of processor time
for each request; their medians are printed. It exits with 1 where any answer is not 2xx.
"""
import os
import re
import socket
import statistics
import subprocess
import sys
import time

PATH = "/v1/posts/p1/likes"
TICK = 1_000_000 / os.sysconf("SC_CLK_TCK")
SERVERS, LOAD = ["taskset", "-c", "1"], ["taskset", "-c", "0"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, holds):
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"waited a minute for {what}")
        time.sleep(0.1)


def answers(port, path):
    return subprocess.run(["curl", "-sfo", os.devnull, f"http://127.0.0.1:{port}{path}"]).returncode == 0


class Build:
    def __init__(self, folder, running):
        redis, tables, self.port, admin = (free_port() for _ in range(4))
        credentials = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        env = os.environ | credentials | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{tables}"}

        def start(*command):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            running.append(subprocess.Popen([*SERVERS, *command], env=env, **quiet))
            return running[-1].pid

        start("redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        cached = ["redis-cli", "-p", str(redis), "SET", "likes:p1", "1:1:1:1:1700000000000"]
        wait_for("redis", lambda: subprocess.run(cached, capture_output=True).stdout == b"OK\n")
        start(f"{folder}/examples/stage", str(tables), "100")
        wait_for("the tables", lambda: socket.socket().connect_ex(("127.0.0.1", tables)) == 0)
        listen = ["--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{admin}"]
        self.pid = start(f"{folder}/tally-count-api", *listen, "--redis", f"redis://127.0.0.1:{redis}", "--log-format", "json")
        wait_for(folder, lambda: answers(admin, "/readyz"))

    def used(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def loaded(self, seconds):
        """Requests a second, and microseconds of processor time for each."""
        before = self.used()
        wrk = [*LOAD, "wrk", "-t", "1", "-c", "64", "-d", f"{seconds}s", f"http://127.0.0.1:{self.port}{PATH}"]
        said = subprocess.run(wrk, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in said:
            sys.exit(said)
        requests = int(re.search(r"(\d+) requests in", said)[1])
        return float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), (self.used() - before) * TICK / requests


def main():
    folders, rounds, seconds = sys.argv[1:3], *(int(number) for number in (sys.argv[3:] + [12, 5][len(sys.argv) - 3 :])[:2])
    running, pairs = [], []
    try:
        builds = [Build(folder, running) for folder in folders]
        for turn in range(rounds):
            order = builds if turn % 2 == 0 else builds[::-1]
            measured = {build: build.loaded(seconds) for build in order}
            pairs.append([measured[build] for build in builds])
    finally:
        for process in running:
            process.terminate()
    for place, what in enumerate(["requests/s", "us a request"]):
        before, after = (statistics.median(pair[side][place] for pair in pairs) for side in (0, 1))
        ratios = [pair[1][place] / pair[0][place] for pair in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{what:13} {before:10.2f} before {after:10.2f} after   of before, median of {rounds} pairs {statistics.median(ratios):.3f} ({spread})")


if len(sys.argv) < 3:
    sys.exit(__doc__)
main()
