#!/usr/bin/env python3
"""Makes the dump of a deployment: runs the binaries of one version, and prints what they have stored.

    make.py BINARIES TABLES_JSON OUT    needs redis-server; everything listens on the loopback, and ends with this
"""
import json, os, signal, socket, subprocess, sys, time, urllib.request, urllib.error

BIN, TABLES, OUT = sys.argv[1:4]

def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

E, K, A, R, P, D = (port() for _ in range(6))
running = []

def start(name, *args, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TALLY_")}
    clean |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{E}", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    path = name if "/" in name or name == "redis-server" else f"{BIN}/{name}"
    log = open(f"{OUT}.{name}.{len(running)}.log", "w")
    p = subprocess.Popen([path, *args], env=clean | (env or {}), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    running.append(p)
    return p

def until(what, holds, seconds=120):
    end = time.time() + seconds
    while True:
        try:
            if (found := holds()) is not None and found is not False:
                return found
        except (OSError, urllib.error.URLError):
            pass
        if time.time() > end:
            raise SystemExit(f"never: {what}")
        time.sleep(0.05)

def call(op, body, target="DynamoDB_20120810"):
    req = urllib.request.Request(f"http://127.0.0.1:{E}/", json.dumps(body).encode(), {"x-amz-target": f"{target}.{op}", "authorization": "x"})
    try:
        return json.load(urllib.request.urlopen(req))
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{op}: {error.read().decode()}")

def control(route, body):
    req = urllib.request.Request(f"http://127.0.0.1:{E}/_control/{route}", json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(req))

def http(method, base, path):
    req = urllib.request.Request(f"http://127.0.0.1:{base}{path}", method=method)
    return urllib.request.urlopen(req).read()

def scan(table):
    found = call("Scan", {"TableName": table, "ConsistentRead": True})
    assert "LastEvaluatedKey" not in found
    return found["Items"]

def item(table, **key):
    return call("GetItem", {"TableName": table, "Key": {k: {"S": v} for k, v in key.items()}, "ConsistentRead": True}).get("Item")

truth = set()
def say(post, user, like=True):
    http("PUT" if like else "DELETE", A, f"/v1/posts/{post}/likes/{user}")
    (truth.add if like else truth.discard)((post, user))

def rows():
    return {(i["post_id"]["S"], i["user_id"]["S"]) for i in scan("likes") if "post_id" in i}

def history():
    """Every record of the table's stream, in order."""
    S = "DynamoDBStreams_20120810"
    arn = call("ListStreams", {"TableName": "likes"}, S)["Streams"][0]["StreamArn"]
    found = []
    for shard in call("DescribeStream", {"StreamArn": arn}, S)["StreamDescription"]["Shards"]:
        it = call("GetShardIterator", {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}, S)["ShardIterator"]
        while True:
            page = call("GetRecords", {"ShardIterator": it}, S)
            found += page["Records"]
            it = page.get("NextShardIterator")
            if not page["Records"]:
                break
    found.sort(key=lambda r: int(r["dynamodb"]["SequenceNumber"]))
    return [{"sequence": r["dynamodb"]["SequenceNumber"], "key": r["dynamodb"]["Keys"], "new": r["dynamodb"].get("NewImage")} for r in found]

def position():
    return max(int(i["sequence"]["S"]) for i in scan("checkpoints") if "sequence" in i)

def main():
    start("redis-server", "--port", str(R), "--save", "", "--bind", "127.0.0.1")
    start("tally-emulator", "--port", str(E), "--shards", "2", "--roll-after", "0ms", "--control")
    start("tally-localstack", "--no-load", "--kafka-port", str(K), "--dynamodb-port", str(D), "--api-port", str(A), "--admin-listen", "off")
    until("the emulator", lambda: call("ListTables", {}) is not None)
    for table in json.loads(open(TABLES).read().replace("${TablePrefix}", "")):
        expiry = table.pop("TimeToLiveSpecification", None)
        if "StreamSpecification" in table:
            table["StreamSpecification"]["StreamEnabled"] = True
        call("CreateTable", table)
        if expiry:
            call("UpdateTimeToLive", {"TableName": table["TableName"], "TimeToLiveSpecification": expiry})
    until("the local stack", lambda: http("GET", A, "/v1/posts/none/likes"))
    label = call("DescribeTable", {"TableName": "likes"})["Table"]["LatestStreamLabel"]
    consumer = start("tally-consumer", "--group", "dumped", "--brokers", f"127.0.0.1:{K}", "--shards", "4", "--admin-listen", "off")
    until("the configuration", lambda: item("checkpoints", id="config"))
    stream = lambda: start("tally-change-streamer", "--redis", f"redis://127.0.0.1:{R}", "--admin-listen", "off", "--poll-idle", "200ms")
    streamer = stream()
    api = start("tally-count-api", "--redis", f"redis://127.0.0.1:{R}", "--listen", f"127.0.0.1:{P}", "--admin-listen", "off")
    until("the api", lambda: http("GET", P, "/v1/posts/none/likes"))
    posts = ["p-0", "p-1", "p-2", "p%233", "p.4"]
    names = {"p%233": "p#3"}
    for n, post in enumerate(posts):
        for u in range(4 + 3 * n):
            say(post, f"u-{u}")
    for post in posts[1:]:
        say(post, "u-1", like=False)
    say("p-0", "%E6%97%A5%E6%9C%AC")
    unquote = urllib.request.unquote
    there = lambda: {(unquote(p), unquote(u)) for p, u in truth}
    until("every row", lambda: rows() == there())
    sums = lambda: {i["post_id"]["S"]: int(i["likes"]["N"]) for i in scan("like_counts")}
    fold = lambda: {p: sum(1 for q, _ in there() if q == p) for p in {q for q, _ in there()}}
    until("every count", lambda: sums() == fold())
    for post in posts[:4]:
        until("it is cached", lambda: json.loads(http("GET", P, f"/v1/posts/{post}/likes"))["exact"])
    say("p-0", "u-9")
    until("the count", lambda: sums() == fold())
    call("UpdateItem", {"TableName": "like_counts", "Key": {"post_id": {"S": "p-2"}}, "UpdateExpression": "ADD s1 :b, likes :b, version :one",
         "ExpressionAttributeValues": {":b": {"N": "4"}, ":one": {"N": "1"}}})
    code = start("tally-batch-recount", "--admin-listen", "off").wait(240)
    assert code == 0, code
    assert sums() == fold(), sums()
    streamer.send_signal(signal.SIGTERM)
    assert streamer.wait(30) == 0
    for u in range(20, 25):
        say("p-1", f"u-{u}")
    say("p.4", "u-2", like=False)
    until("every row", lambda: rows() == there())
    changes = history()
    control("trim", {"table": "likes"})
    streamer = stream()
    until("the gap", lambda: (item("checkpoints", id="gaps") or {}).get("open", {}).get("M"))
    until("the leases", lambda: sum("owner" in i for i in scan("checkpoints")) == 2)
    time.sleep(9)
    before = len(rows())
    for n in range(12):
        say("later", f"u-{n}")
    until("every row", lambda: rows() == there())
    until("the later count", lambda: sums().get("later") == 12)
    until("the checkpoints", lambda: position() >= int(history()[-1]["sequence"]))
    streamer.kill(); streamer.wait()
    for p in (api, consumer):
        p.send_signal(signal.SIGTERM)
        assert p.wait(30) == 0
    since = history()
    assert len(since) == 12, since
    cached = subprocess.run(["redis-cli", "-p", str(R), "keys", "*"], capture_output=True, text=True).stdout.split()
    values = {k: subprocess.run(["redis-cli", "-p", str(R), "get", k], capture_output=True, text=True).stdout.strip() for k in cached}
    with open(OUT, "w") as out:
        print("label", json.dumps(label), file=out)
        for r in changes:
            print("change", json.dumps(r, sort_keys=True, ensure_ascii=False, separators=(",", ":")), file=out)
        print("change", json.dumps("trim"), file=out)
        for r in since:
            print("change", json.dumps(r, sort_keys=True, ensure_ascii=False, separators=(",", ":")), file=out)
        for table in ["likes", "like_counts", "checkpoints", "recounts"]:
            lines = []
            for i in scan(table):
                for v in i.values():
                    if "SS" in v: v["SS"].sort()
                lines.append(f"{table} " + json.dumps(i, sort_keys=True, ensure_ascii=False, separators=(",", ":")))
            print(*sorted(lines), sep="\n", file=out)
        for k in sorted(values):
            print("cached", k, values[k], file=out)
    print(sums(), fold(), file=sys.stderr)

try:
    main()
finally:
    for p in running:
        if p.poll() is None:
            p.kill()
