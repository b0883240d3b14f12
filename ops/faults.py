"""The faults, each with the alerts that it makes fire, and how it is taken back."""

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from lib import metrics, until

# The Kafka is that of a local stack, whose own consumer has the group without a prefix, and whose own lists have topics without one.
PREFIX = "drill-"
LIKES, COUNTS, CHANGES, BOARDS = (f"{PREFIX}{name}" for name in ("likes", "like_counts", "changes", "boards"))

# How long an alert may take from its fault, and from the end of its fault, in seconds.
FIRES, ENDS = 150, 240
# A fault that is in force may be for a request past all services, too.
TRIES = 50
# Alerts that no fault here makes fire, each with the reason.
NOT_HERE = {
    "TallyWriteQuotaNear": "it takes 28,000 rows a second; its unit tests have them",
    "TallyRegionSilent": "there is one Region here; its unit tests have others",
    "MonthlyBudget": "of AWS Budgets, which is not here",
}


class Fault(NamedTuple):
    what: str
    alerts: tuple
    inject: Callable
    heal: Callable = lambda _: None


# ---- Kafka to rows -----------------------------------------------------------------------------------------------------


def throttle_rows(world):
    world.fault(*[{"fault": "throttle", "operation": what, "table": LIKES} for what in ("PartiQLInsert", "PartiQLUpdate")])


def no_fault(world):
    world.fault()


def pause(world):
    # The drill waits for the alert alone, so it need not wait until nothing of before lands.
    world.operate("pause", "consumer", "--settle", "1s", "--brokers", world.brokers)


def resume(world):
    world.operate("resume", "consumer", "--brokers", world.brokers)


def say_no_json(world):
    world.say("post-1\tno event\npost-1\t{\npost-1\t[1]\n", 0)


def say_elsewhere(world):
    # The same key in two partitions: it is wrong in one of them at least.
    for partition in (0, 1):
        event = '{"post_id":"post-1","user_id":"astray","action":"like","ts":1700000000000}'
        world.say(f"post-1\t{event}\n", partition)


# ---- rows to counts ----------------------------------------------------------------------------------------------------


def stream_cannot_be_read(world):
    world.fault({"fault": {"internal_error": {"applied": False}}, "operation": "GetRecords"})


def switch_stream(world, on):
    specification = {"StreamEnabled": on} | ({"StreamViewType": "NEW_AND_OLD_IMAGES"} if on else {})
    world.store.ask("UpdateTable", {"TableName": LIKES, "StreamSpecification": specification}, TRIES)


def put_what_is_no_row(world):
    world.store.ask("PutItem", {"TableName": LIKES, "Item": {"pk": {"S": "no row key"}, "user_id": {"S": "u"}, "liked_at": {"N": "1"}}}, TRIES)


def lose_stream(world):
    """The streamer is away while likes go on and the stream is trimmed; the recount stands still, so that the loss stays open."""
    world.kill("change-streamer")
    world.signal("batch-recount", signal.SIGSTOP)
    time.sleep(2)
    world.store.control("trim", {"table": LIKES})
    world.start_service("change-streamer")


# ---- exactness ---------------------------------------------------------------------------------------------------------


def known_post(world):
    """A post with a count."""

    def liked():
        counts = world.store.scan("like_counts")
        return next((item["post_id"] for item in counts if item["post_id"].startswith("post-") and int(item.get("likes", 0)) > 5), None)

    return until("a post to be liked", liked)


def put_a_count_wrong(world, by=3):
    world.wrong = known_post(world)
    world.store.drift(world.wrong, by, TRIES)
    recount_it(world)


def put_a_count_wrong_again(world):
    """After its correction was found right, and before the look a minute later."""

    def repaired():
        return sum(value for name, value in metrics(world.admin_of("batch-recount")) if name == 'tally_recount_keys_total{outcome="repaired"}')

    before = repaired()
    put_a_count_wrong(world)
    until("the correction to be found right", lambda: repaired() > before)
    world.store.drift(world.wrong, 2, TRIES)


def recount_it(world):
    until("the recount to take the request", lambda: world.recount({"post_ids": [world.wrong]}))


def force_the_correction(world):
    world.run("tally-batch-recount", "--brokers", world.brokers, "--changes-topic", CHANGES, "--post", world.wrong, "--force")


def audit(world):
    until("the recount to take the request", lambda: world.recount({"audit": True}))


# ---- what is trending --------------------------------------------------------------------------------------------------


def say_no_board(world):
    world.say("board/none\tno board\n", 0, BOARDS)


def flood(world):
    """More posts than there is room for, liked once each."""
    event = '{{"post_id":"flood-{0}","user_id":"u","action":"like","ts":1700000000000}}'
    world.say("".join(f"flood-{nth}\t{event.format(nth)}\n" for nth in range(12000)))


def say_what_later_versions_say(world):
    world.say('any\t{"v":99}\n', 0, CHANGES)


# ---- the API -----------------------------------------------------------------------------------------------------------


def slow_reads(world):
    world.load.uncached = True
    for_each = [{"fault": {"latency": {"min_ms": 150, "max_ms": 250}}, "operation": call, "table": COUNTS} for call in ("GetItem", "BatchGetItem")]
    world.fault(*for_each)


def quick_reads(world):
    world.load.uncached = False
    world.fault()


FAULTS = [
    Fault("there was no audit yet, then there is", ("TallyLastAuditOld",), lambda _: None, audit),
    # Before the faults that lose stream: audits find drift then.
    Fault("a count is put wrong by 3, and recounted", ("TallyDriftFound",), put_a_count_wrong),
    Fault(
        "a count is put wrong by 5,000, and recounted; then with --force",
        ("TallyCorrectionsWithheld",),
        lambda world: put_a_count_wrong(world, 5000),
        force_the_correction,
    ),
    Fault("a count is put wrong again right after its correction", ("TallyRecountAlarm",), put_a_count_wrong_again, recount_it),
    Fault("writes of likes are throttled", ("TallyConsumerLag", "TallyRetentionNear", "TallyThrottling"), throttle_rows, no_fault),
    Fault("the consumer is killed", ("TallyLagMissing",), lambda world: world.kill("consumer"), lambda world: world.start_service("consumer")),
    Fault("the topic is paused, and resumed", ("TallyPartitionHalted",), pause, resume),
    Fault("Kafka stands still", ("TallyKafkaErrors", "TallyChangesBehind"), lambda world: world.signal("kafka", signal.SIGSTOP), lambda world: world.signal("kafka", signal.SIGCONT)),
    Fault(
        "the consumer stands still",
        ("TallyCanaryFails",),
        lambda world: world.signal("consumer", signal.SIGSTOP),
        lambda world: world.signal("consumer", signal.SIGCONT),
    ),
    Fault("three records are no events", ("TallyDeadLetters",), say_no_json),
    Fault("a like is in another partition than its key's", ("TallyMisroutedEvents",), say_elsewhere),
    Fault(
        "the stream cannot be read",
        ("TallyStreamAgeHour", "TallyStreamAgeSixHours", "TallyStalenessBurn (page)", "TallyStalenessBurn (ticket)"),
        stream_cannot_be_read,
        no_fault,
    ),
    Fault("an item of likes is no row", ("TallyQuarantine",), put_what_is_no_row),
    Fault(
        "the stream is switched off, and on again",
        ("TallyStreamNotFollowed",),
        lambda world: switch_stream(world, False),
        lambda world: switch_stream(world, True),
    ),
    Fault(
        "stream is trimmed unread, and the recount stands still",
        ("TallyGapOpen", "TallyGapsBurn", "TallyListsLoss"),
        lose_stream,
        lambda world: world.signal("batch-recount", signal.SIGCONT),
    ),
    Fault(
        "the recount is killed",
        ("TallyServiceMissing",),
        lambda world: world.kill("batch-recount"),
        lambda world: world.start_service("batch-recount"),
    ),
    Fault("Redis is killed", ("TallyCacheAway",), lambda world: world.kill("redis"), lambda world: world.start_service("redis")),
    Fault("reads of like_counts take 200 ms", ("TallyReadsBurn (page)", "TallyReadsBurn (ticket)"), slow_reads, quick_reads),
    Fault("tally-trends stands still", ("TallyListsBehind",), lambda world: world.signal("trends", signal.SIGSTOP), lambda world: world.signal("trends", signal.SIGCONT)),
    Fault("tally-trends is killed", ("TallyListsPartial",), lambda world: world.kill("trends"), lambda world: world.start_service("trends")),
    Fault("a record of the boards is no board", ("TallyBoardsUnreadable",), say_no_board),
    Fault("12,000 posts are liked, with room for 10,000", ("TallyKeysShed",), flood),
    # The record stays in the log, so this is the end of tally-trends, and the last fault.
    Fault("a message of the log is of a later version", ("TallyTrendsHalted",), say_what_later_versions_say, lambda world: world.kill("trends")),
]


def run(world, prometheus, wanted):
    """Injects each fault that an alert of `wanted` needs; the number of alerts that did not fire and end."""
    failed, seen = 0, set()
    print(f"{'alert':29} {'fires':>6} {'ends':>6}  fault")
    for fault in FAULTS:
        names = [alert for alert in fault.alerts if alert.split(" ")[0] in wanted]
        if not names:
            continue
        for name, fires, ends in one(world, prometheus, fault, names):
            seen.add(name.split(" ")[0])
            is_good = fires is not None and ends is not None
            failed += not is_good
            shown = [f"{fires:.0f} s" if fires is not None else "never", f"{ends:.0f} s" if ends is not None else "never"]
            print(f"{name:29} {shown[0]:>6} {shown[1]:>6}  {fault.what}", flush=True)
    for name in sorted(wanted - seen):
        print(f"{name:29} {'not provoked':>13}  {NOT_HERE.get(name, 'no fault is known')}")
        failed += name not in NOT_HERE
    print(f"{'MonthlyBudget':29} {'not provoked':>13}  {NOT_HERE['MonthlyBudget']}")
    return failed


def one(world, prometheus, fault, names):
    """(alert, seconds from the fault until it fired, seconds from its end until it had ended) for each."""
    if fault.heal is not audit and not within(ENDS, lambda: not prometheus.firing() & set(names)):
        print(f"{', '.join(names)}: fires before there is a fault")
        return [(name, None, None) for name in names]
    began, fires, ends = time.monotonic(), {}, {}
    fault.inject(world)

    def all_fire():
        for name in prometheus.firing() & set(names):
            fires.setdefault(name, time.monotonic() - began)
        return len(fires) == len(names)

    within(FIRES, all_fire)
    healed = time.monotonic()
    fault.heal(world)

    def all_ended():
        firing = prometheus.firing()
        for name in set(fires) - firing:
            ends.setdefault(name, time.monotonic() - healed)
        return len(ends) == len(fires)

    within(ENDS, all_ended)
    return [(name, fires.get(name), ends.get(name)) for name in names]


def within(seconds, done):
    """Whether `done` came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.3)
    return False
