#!/usr/bin/env python3
"""Writes the bad-input corpus: what producers and HTTP clients send that they should not, and what has to become of it.

The expected outcome of each case follows from how the case is built and from the contract for producers and clients,
never from running the code under test. The same cases come out every time:

    e2e/bad_input/generate.py          # rewrites events.jsonl and http.jsonl
    e2e/bad_input/generate.py --check  # fails if they are not what this script writes
"""

import argparse
import base64
import itertools
import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).parent
DRAW = random.Random(20240229)

MAX_EVENT = 64 * 1024
LAST_MILLISECOND = 253_402_300_799_999

events = []
serial = itertools.count()


def b64(data):
    return base64.b64encode(data).decode()


def pieces(data):
    """Bytes as a list of [base64, times]: long runs of one byte are counted, not written out."""
    runs, rest = [], 0
    for run in re.finditer(rb"(.)\1{999,}", data, re.DOTALL):
        runs += [[b64(data[rest : run.start()]), 1], [b64(run.group(1)), len(run.group())]]
        rest = run.end()
    return [piece for piece in [*runs, [b64(data[rest:]), 1]] if piece[0]] or [["", 1]]


def reject(kind, reason, value, headers=()):
    """A record that has to become a dead letter for this reason."""
    events.append(
        {
            "class": kind,
            "value": None if value is None else pieces(value),
            "headers": [[name, None if text is None else b64(text)] for name, text in headers],
            "expect": reason,
        }
    )


def accept(kind, post, user, like=True, value=None, headers=()):
    """A record that looks bad and is not: it has to be applied."""
    if value is None:
        value = text(post_id=post, user_id=user, action="like" if like else "unlike")
    events.append(
        {
            "class": kind,
            "value": pieces(value),
            "headers": [[name, None if content is None else b64(content)] for name, content in headers],
            "expect": "applied",
            "post": post,
            "user": user,
            "like": like,
        }
    )


def text(**fields):
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def ids():
    """A post and a user that no other case has."""
    n = next(serial)
    return f"p-{n}", f"u-{n}"


def event(**changed):
    post, user = ids()
    fields = {"post_id": post, "user_id": user, "action": "like"} | changed
    return text(**{name: value for name, value in fields.items() if value is not ...})


def malformed_json():
    whole = event(ts=1_700_000_000_000, note="x" * 40)
    # Every beginning of an event, the empty one apart, is no JSON.
    for end in range(1, len(whole)):
        reject("malformed json", "not_json", whole[:end])
    for tail in [b" x", b"{}", b",", b"\0", b"]", b"}}", b"null", b'"']:
        reject("malformed json", "not_json", event() + tail)
    for broken in [
        b"{'post_id':'p'}", b"{post_id:1}", b'{"post_id":"p",}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}',
        b'{"a":NaN}', b'{"a":Infinity}', b'{"a":"\\x41"}', b'{"a":"\\u12"}', b'{"post_id":"\\ud800","user_id":"u","action":"like"}',
        b'{"a":"\x01"}', b'{"a":"\n"}', b"\xef\xbb\xbf{}", b"//c\n{}", b"/**/{}", b"{}//", b"{\"a\":1 \"b\":2}", b"tru",
        b"nul", b"--1", b"[1,]", b"[,1]", b"{,}", b"{]", b"[}", b" ", b"\t\n", b"like", b"<like/>", b"post_id=p&user_id=u",
        b"\x1f\x8b\x08", b"AAAA", b"0x10", b"'like'", b"{\"a\"}", b"{:1}", b"{\"a\":}",
    ]:
        reject("malformed json", "not_json" if is_utf8(broken) else "not_utf8", broken)


def is_utf8(data):
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


def wrong_types():
    for whole in ["[]", "[1,2]", '"like"', "1", "-1", "1.5", "true", "false", "null", "[[[[]]]]", '[{"post_id":"p"}]', '""']:
        reject("wrong types", "not_an_object", whole.encode())
    others = [7, -7, 1.5, True, False, None, [], ["p"], {}, {"id": "p"}]
    for other in others:
        reject("wrong types", "bad_post_id", event(post_id=other))
        reject("wrong types", "bad_user_id", event(user_id=other))
        reject("wrong types", "bad_action", event(action=other))
    for both in itertools.product(others, others):
        # The first wrong field in the order of the contract is the reason.
        reject("wrong types", "bad_post_id", event(post_id=both[0], user_id=both[1]))


def missing_fields():
    names = ["post_id", "user_id", "action"]
    for size in range(3):
        for kept in itertools.combinations(names, size):
            for extra in [{}, {"ts": 1}, {"event_id": "e"}, {"postId": "p", "userId": "u"}, {"Post_Id": "p"}, {"x": {"y": [1]}}]:
                post, user = ids()
                fields = {"post_id": post, "user_id": user, "action": "like"}
                reject("missing fields", "missing_field", text(**{name: fields[name] for name in kept}, **extra))


def sizes():
    reject("sizes", "empty_value", None)
    reject("sizes", "empty_value", b"")
    for over in [1, 2, 100, 4096, 65_536, 500_000]:
        post, user = ids()
        value = text(post_id=post, user_id=user, action="like", x="")
        value = value[:-2] + b"y" * (MAX_EVENT + over - len(value)) + b'"}'
        reject("sizes", "too_large", value)
        reject("sizes", "too_large", b"\xff" * (MAX_EVENT + over))
        reject("sizes", "too_large", b"[" * (MAX_EVENT + over))
    for under in [0, 1, 2, 100, 4096]:
        post, user = ids()
        value = text(post_id=post, user_id=user, action="like", x="")
        accept("sizes", post, user, value=value[:-2] + b"y" * (MAX_EVENT - under - len(value)) + b'"}')


def encodings():
    invalid = [
        b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc0\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80",
        b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3", b"\xc3\x28",
    ]
    for bad in invalid:
        post, user = (name.encode() for name in ids())
        for before, after in [
            (b'{"post_id":"', b'","user_id":"' + user + b'","action":"like"}'),
            (b'{"post_id":"' + post + b'","user_id":"', b'","action":"like"}'),
            (b'{"post_id":"' + post + b'","user_id":"' + user + b'","action":"', b'"}'),
            (b'{"post_id":"' + post + b'","user_id":"' + user + b'","action":"like","x":"', b'"}'),
            (b"", b""),
            (event(), b""),
            (b"", event()),
        ]:
            reject("encodings", "not_utf8", before + bad + after)
    for encoding in ["utf-16", "utf-16-be", "utf-32"]:
        data = event().decode().encode(encoding)
        reject("encodings", "not_json" if is_utf8(data) else "not_utf8", data)


CONTROLS = [chr(n) for n in [*range(0x20), 0x7F, *range(0x80, 0xA0)]]


def bad_ids():
    for field, reason in [("post_id", "bad_post_id"), ("user_id", "bad_user_id")]:
        reject("ids", reason, event(**{field: ""}))
        for length in [257, 258, 300, 512, 1023, 1024, 1025, 2047, 2048, 2049, 10_000]:
            reject("ids", reason, event(**{field: "x" * length}))
        for wide in ["é", "€", "\U0001f600"]:
            count = 256 // len(wide.encode()) + 1
            reject("ids", reason, event(**{field: wide * count}))
        for control in CONTROLS:
            for around in ["{}", "a{}", "{}a", "a{}b"]:
                reject("ids", reason, event(**{field: around.format(control)}))
        reject("ids", reason, event(**{field: "\x01recount"}))


def good_ids():
    n = next(serial)
    strange = [
        "#", "##", "a#3", "a#", "#3", "a#b#15", "'", '"', "\\", "/", "..", "../../etc/passwd", "%00", "%2e", "null", "0", "-1",
        " ", "a b", " a", "a ", "é", "e\u0301", "\u200b", "\u202e", "\ufeff", "\U0001f469\u200d\U0001f680", "İ", "ı", "ſ", "Å",
        "\u212b", "x" * 256, "é" * 128, "\U0001f600" * 64, "$(reboot)", "`id`", "; DROP TABLE likes", "<script>alert(1)</script>",
        "{{7*7}}", "${jndi:ldap://x}", "\ufffd", "\u2028", "\ue000", "\U0010ffff", ":", "likes:p", "*3\\r\\n$3", "a,b", "a=b", "a;b",
        "post#recount", "recount", "CON", "NaN", "true", "[]", "{}", "a\u00a0b",
    ]
    for one in strange:
        accept("ids that are legal", one, f"plain-{n}")
        accept("ids that are legal", f"plain-{n}", one)
        accept("ids that are legal", f"other-{n}", one, like=False)
    # Look-alikes are different people.
    for pair, (a, b) in enumerate(
        [("é", "e\u0301"), ("Å", "\u212b"), ("ﬁ", "fi"), ("a", "а"), ("K", "\u212a"), ("A", "a"), ("a", "a "), ("1", "１")]
    ):
        accept("ids that are legal", f"twins-{pair}", f"x{a}")
        accept("ids that are legal", f"twins-{pair}", f"x{b}")


def actions():
    for action in [
        "LIKE", "Like", "like ", " like", "likes", "lik", "", "unlike\0", "UNLIKE", "un-like", "dislike", "1", "true", "toggle",
        "delete", "null", "l\u0456ke", "like\n", "like,unlike", "ｌｉｋｅ", "add", "+1", "👍", "x" * 1000,
    ]:
        for extra in [{}, {"ts": 5}]:
            reject("actions", "bad_action", event(action=action, **extra))


def timestamps():
    for bad in [
        -1, -(2**31), -(2**63), LAST_MILLISECOND + 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 1.5, 0.1, -0.5, 1e3, 1e20, True, False,
        "1700000000000", "", "now", "2024-01-01T00:00:00Z", [], [1], {}, {"ms": 1},
    ]:
        reject("timestamps", "bad_timestamp", event(ts=bad))
    for raw in [b"1e3", b"1E3", b"1.0", b"-0.0", b"18446744073709551616", b"99999999999999999999999999"]:
        reject("timestamps", "bad_timestamp", event()[:-1] + b',"ts":' + raw + b"}")
    for good in [0, 1, 1_700_000_000_000, LAST_MILLISECOND, None]:
        post, user = ids()
        accept("timestamps", post, user, value=text(post_id=post, user_id=user, action="like", ts=good))


def envelopes():
    def envelope(data, **changed):
        fields = {"specversion": "1.0", "id": "1", "source": "/app", "type": "like", "data": data} | changed
        return text(**{name: value for name, value in fields.items() if value is not ...})

    def inner(**changed):
        return json.loads(event(**changed))

    for version in ["0.3", "0.2", "2.0", "1", "", "v1.0", "10.0", "x", 1, 1.0, True, None, [], {}]:
        reject("envelopes", "bad_envelope", envelope(inner(), specversion=version))
    for data in [..., None, "e30=", "{}", 1, True, [], [inner()]]:
        reject("envelopes", "bad_envelope", envelope(data))
    reject("envelopes", "bad_envelope", text(specversion="1.0", id="1", source="/app", type="like", data_base64=b64(event())))
    reject("envelopes", "missing_field", envelope(inner(user_id=...)))
    reject("envelopes", "missing_field", envelope({}))
    reject("envelopes", "missing_field", envelope({"specversion": "1.0", "data": inner()}))
    for field, bad, reason in [("post_id", "", "bad_post_id"), ("user_id", "\x01", "bad_user_id"), ("action", "?", "bad_action"), ("ts", -1, "bad_timestamp")]:
        reject("envelopes", reason, envelope(inner(**{field: bad})))
    for version in ["1.0", "1.1", "1.99"]:
        post, user = ids()
        accept("envelopes", post, user, value=envelope({"post_id": post, "user_id": user, "action": "like"}, specversion=version))
        post, user = ids()
        accept("envelopes", post, user, headers=[("ce_specversion", version.encode()), ("ce_id", b"1"), ("ce_type", b"like")])
    for version in [b"0.3", b"", b"2.0", b"\xff", b"10", b"1"]:
        reject("envelopes", "bad_envelope", event(), headers=[("ce_specversion", version)])
    reject("envelopes", "missing_field", b"{}", headers=[("ce_specversion", b"1.0")])


def headers():
    """Whatever the headers are, the event decides."""
    for name, value in [
        ("traceparent", b""), ("traceparent", b"00-zz-zz-00"), ("traceparent", b"\xff" * 55), ("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00"),
        ("traceparent", b"0" * 5000), ("tracestate", b"\0"), ("content-type", b"\xff\xfe"), ("content-type", b"text/html"), ("", b"x"), ("\U0001f600", b"x"),
        ("__connect.errors.topic", b"elsewhere"), ("__connect.errors.partition", b"-1"), ("__connect.errors.offset", b"x"), ("__connect.errors.class.name", b"not_json"),
        ("x", None), ("ce_id", None), ("x" * 300, b"y" * 3000), ("a\r\nb", b"c\r\nd"), ("a\0b", b"\0"),
    ]:
        post, user = ids()
        accept("headers", post, user, headers=[(name, value)] if "\0" not in name else [("a", value)])
        reject("headers", "not_json", b"{", headers=[(name, value)] if "\0" not in name else [("a", value)])
    post, user = ids()
    accept("headers", post, user, headers=[("h", b"%d" % n) for n in range(300)])


def structures():
    for depth in [2, 10, 50, 100]:
        post, user = ids()
        nested = "[" * depth + "]" * depth
        accept("structures", post, user, value=text(post_id=post, user_id=user, action="like")[:-1] + f',"x":{nested}}}'.encode())
        reject("structures", "not_an_object", nested.encode())
    # Deep, but JSON: it says nothing we need, and overflows no stack.
    for depth in [200, 1000, 10_000, 30_000]:
        reject("structures", "not_an_object", b"[" * depth + b"]" * depth)
    for depth in [200, 1000]:
        reject("structures", "missing_field", b'{"x":' * depth + b"1" + b"}" * depth)
    post, user = ids()
    accept("structures", post, user, value=b'{"post_id":1,"action":"like","user_id":"%b","post_id":"%b"}' % (user.encode(), post.encode()))
    post, user = ids()
    accept("structures", post, user, value=b" \n\t" + text(post_id=post, user_id=user, action="like") + b"\r\n ")
    post, user = ids()
    accept("structures", post, user, value=b'{"p\\u006fst_id":"%b","user_id":"%b","action":"l\\u0069ke"}' % (post.encode(), user.encode()))
    reject("structures", "bad_user_id", b'{"post_id":"p","user_id":"\\u0001recount","action":"like"}')
    reject("structures", "bad_post_id", b'{"post_id":"a\\u0000b","user_id":"u","action":"like"}')
    for count in [100, 2000]:
        post, user = ids()
        many = ",".join(f'"k{n}":{n}' for n in range(count))
        accept("structures", post, user, value=text(post_id=post, user_id=user, action="like")[:-1] + f",{many}}}".encode())


def mutations():
    """Random damage that is certain to be damage: a byte that no UTF-8 text contains, or a mark of the JSON taken away."""
    for _ in range(400):
        whole = bytearray(event(ts=1))
        at = DRAW.randrange(len(whole) + 1)
        whole.insert(at, DRAW.choice([0xC0, 0xC1, 0xF5, 0xFE, 0xFF]))
        reject("random damage", "not_utf8", bytes(whole))
    for _ in range(200):
        whole = bytearray(event(ts=1))
        del whole[DRAW.choice([n for n, byte in enumerate(whole) if byte in b'{}":,'])]
        if not parses(bytes(whole)):
            reject("random damage", "not_json", bytes(whole))


def parses(data):
    try:
        json.loads(data)
        return True
    except ValueError:
        return False


http = []


def ask(kind, statuses, method, target, head=(), body=b"", raw=None):
    """A request, and the statuses of which its answer has to have one; none means that the connection may just end."""
    if raw is None:
        lines = [f"{method} {target} HTTP/1.1", "host: x", "connection: close", *head]
        if body:
            lines.append(f"content-length: {len(body)}")
        raw = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body
    http.append({"class": kind, "request": pieces(raw), "statuses": statuses})


def percent(data):
    return "".join(f"%{byte:02x}" for byte in data)


def http_paths():
    for control in CONTROLS:
        ask("http ids", [400], "GET", f"/v1/posts/{percent(('a' + control).encode())}/likes")
        ask("http ids", [400], "GET", f"/v1/posts/p/likes/{percent(control.encode())}")
    for length in [257, 300, 512, 1024, 1300]:
        ask("http ids", [400], "GET", f"/v1/posts/{'a' * length}/likes")
    for length in [5000, 9000]:
        ask("http ids", [400, 414, 431], "GET", f"/v1/posts/{'a' * length}/likes")
    for bad in ["%ff", "%c0%af", "%ed%a0%80", "%fe%fe", "%80"]:
        ask("http ids", [400], "GET", f"/v1/posts/{bad}/likes")
    for legal in ["%23", "a%233", "%2e%2e", "%2F", "%25", "%F0%9F%98%80", "%22", "%27", "a%20b", "%e2%80%ae", "x" * 256]:
        ask("http ids", [200], "GET", f"/v1/posts/{legal}/likes")
    for trick in ["/../../etc/passwd", "/docs/../../etc/passwd", "/docs/%2e%2e/%2e%2e/etc/passwd", "/docs/..%5c..%5cboot.ini", "//etc/passwd", "/.git/config", "/.env", "/v1", "/v1/", "/v1/posts", "/v1/posts/", "/v1/posts//likes", "/v1/posts/p", "/v2/posts/p/likes", "/admin", "/metrics", "/readyz", "/actuator", "/wp-login.php"]:
        ask("http paths", [400, 404, 308, 307], "GET", trick)
    for method in ["TRACE", "PATCH", "PROPFIND", "BREW", "DELETE", "POST", "PUT"]:
        ask("http paths", [405, 404, 501], method, "/v1/posts/p/likes")
    for method in ["TRACE", "PATCH", "PROPFIND"]:
        ask("http paths", [405], method, "/v1/posts/p/likes", [], b"{}")


def http_bodies():
    kind = ["content-type: application/json"]
    for body in [b"", b"{", b"[]", b"null", b"1", b'"p"', b"{}", b'{"post_ids":1}', b'{"post_ids":"p"}', b'{"post_ids":[1]}', b'{"post_ids":[null]}', b'{"post_ids":[[]]}', b'{"post_ids":[""]}', b'{"post_ids":["a\\u0001"]}', b'{"ids":["p"]}', b"\xff", b'{"post_ids":["\xff"]}', b"[" * 5000, b'{"post_ids":' * 500]:
        ask("http bodies", [400, 411, 415, 422], "POST", "/v1/likes:batchGet", kind, body)
    ask("http bodies", [400, 422], "POST", "/v1/likes:batchGet", kind, json.dumps({"post_ids": ["p"] * 101}).encode())
    ask("http bodies", [400, 422], "POST", "/v1/likes:batchGet", kind, json.dumps({"post_ids": ["x" * 257]}).encode())
    ask("http bodies", [400, 413], "POST", "/v1/likes:batchGet", kind, b"[" * 400_000)
    for other in ["text/plain", "application/xml", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "\U0001f600"]:
        ask("http bodies", [200, 400, 415], "POST", "/v1/likes:batchGet", [f"content-type: {other}"], b'{"post_ids":["p"]}')
    for cursor in ["x", "%00", "A" * 3000, "..", "%f0%9f%98%80", "0", "-1", "e30"]:
        ask("http bodies", [400, 414, 431], "GET", f"/v1/posts/p/likers?cursor={cursor}")
    for limit in ["0", "-1", "1e3", "999999999999999999999", "x", "", "1.5", "%00"]:
        ask("http bodies", [400], "GET", f"/v1/posts/p/likers?limit={limit}")


def http_headers():
    get = ("GET", "/v1/posts/p/likes")
    for tag in ['"', "W/", '""', "*", ",", "x" * 3000, '"a", "b", W/"c"', "\U0001f600"]:
        ask("http headers", [200, 304, 400, 431], *get, [f"if-none-match: {tag}"])
    for name, value in [("x-request-id", "a" * 500), ("x-request-id", "\\n{}"), ("x-request-id", ""), ("x-forwarded-for", "';--"), ("x-forwarded-for", "1.2.3.4:99"), ("x-forwarded-for", ","), ("authorization", "Bearer x"), ("authorization", "Basic eDp5"), ("authorization", ""), ("accept-encoding", "x" * 900), ("accept", "application/xml"), ("range", "bytes=0-"), ("origin", "null"), ("expect", "100-continue"), ("upgrade", "h2c"), ("te", "trailers"), ("traceparent", "00-zz"), ("cookie", "a" * 4000)]:
        ask("http headers", [200], *get, [f"{name}: {value}"])
    for count in [50, 90]:
        ask("http headers", [200, 431], *get, ["a: b"] * count)
    for count in [200, 2000]:
        ask("http headers", [400, 431], *get, ["a: b"] * count)
    ask("http headers", [400, 431], *get, ["a: " + "b" * 70_000])
    for raw in [
        b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n\r\n", b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /v1/posts/p/likes HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n", b"GET /v1/posts/p/likes HTTP/1.1\r\nhost : x\r\n\r\n",
        b"GET /v1/posts/p/likes HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", b"GET /v1/posts/p/likes HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /v1/likes:batchGet HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"POST /v1/likes:batchGet HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"CONNECT evil:443 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"EVAL \"x\" 0\r\n",
    ]:
        ask("http framing", [400, 404, 405, 411, 415, 422, 431, 501, 505, None], None, None, raw=raw)
    for version, hosts, status in [("1.1", [], 400), ("1.1", ["x", "x"], 400), ("1.1", ["x", "y"], 400), ("1.0", ["x", "y"], 400), ("1.0", [], 200)]:
        lines = [f"GET /v1/posts/p/likes HTTP/{version}", *[f"host: {host}" for host in hosts], "connection: close", "", ""]
        ask("http framing", [status], None, None, raw="\r\n".join(lines).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for write in [malformed_json, wrong_types, missing_fields, sizes, encodings, bad_ids, good_ids, actions, timestamps, envelopes, headers, structures, mutations]:
        write()
    for write in [http_paths, http_bodies, http_headers]:
        write()
    stale = []
    for name, cases in [("events.jsonl", events), ("http.jsonl", http)]:
        lines = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
        path = HERE / name
        if options.check:
            if not path.exists() or path.read_text() != lines:
                stale.append(name)
        else:
            path.write_text(lines)
        classes = {case["class"] for case in cases}
        print(f"{name}: {len(cases)} cases in {len(classes)} classes")
    if stale:
        sys.exit(f"not what this script writes: {', '.join(stale)}")


main()
