//! Tests of where a consumer that takes a partition over begins to read, and up to where that is a replay (of records
//! whose tombstones may be gone); of what a claim stores; and of [`Ends`], the ends of the log that were asked for.
use super::*;
use crate::register::{Generation, SafeTimes, Version};
use crate::topic::Partition;

const TOMBSTONES: Duration = Duration::from_secs(24 * 3600);
const HOUR: u64 = 3_600_000;
/// A moment a month after the epoch.
const NOW: UnixMillis = UnixMillis(720 * HOUR);

fn id(name: &str) -> TopicId {
    TopicId(name.into())
}

fn topic() -> Topic {
    Topic::first(id("one"), vec![Offset(10), Offset(20)])
}

/// Returns what is stored of a partition that had sent up to 100 half a day ago and is at 200 now.
fn kept() -> Kept {
    let past = Past([(UnixMillis(NOW.0 - 13 * HOUR), Offset(100)), (UnixMillis(NOW.0 - HOUR), Offset(190))].into());
    let (safe_at, at) = (Some(UnixMillis(NOW.0 - 2_000)), UnixMillis(NOW.0 - 1_000));
    Kept { safe_at, at, past, ..Kept::first(&topic(), Offset(200)) }
}

fn log(start: u64, end: u64) -> Log {
    Log { topic: id("one"), start: Offset(start), end: Offset(end) }
}

fn start(kept: Option<Kept>, committed: Option<u64>, log: &Log, topic: &Topic) -> Result<Start, Standstill> {
    start_in(log, topic, NOW, kept, committed)
}

/// Starts at another time, with a log and a topic that fit.
fn start_at(now: UnixMillis, kept: Kept, committed: Option<u64>) -> Start {
    start_in(&log(10, 1_000), &topic(), now, Some(kept), committed).unwrap()
}

fn start_in(
    log: &Log,
    topic: &Topic,
    now: UnixMillis,
    kept: Option<Kept>,
    committed: Option<u64>,
) -> Result<Start, Standstill> {
    let (claim, committed) = (Claim { n: 7, kept }, committed.map(Offset));
    Found { claim: &claim, topic, index: 0, log, partitions: 2, committed, there: None }.start(now, TOMBSTONES)
}

/// Returns where reading begins, and up to where it is a replay.
fn begun(kept: Option<Kept>, committed: Option<u64>) -> (u64, Option<u64>) {
    let start = start(kept, committed, &log(10, 1_000), &topic()).unwrap();
    (start.at.0, start.replay.map(|until| until.0))
}

#[test]
fn reading_starts_at_the_smaller_of_what_the_group_committed_and_what_is_safe_and_at_that_if_it_committed_none() {
    assert_eq!(begun(None, None), (10, None), "nobody has claimed it before");
    assert_eq!(begun(Some(kept()), None), (200, None));
    assert_eq!(begun(Some(kept()), Some(200)), (200, None));
    assert_eq!(begun(Some(kept()), Some(150)), (150, None));
}

#[test]
fn a_start_before_what_was_safe_half_of_the_tombstones_time_ago_is_a_replay_and_any_other_is_none() {
    assert_eq!(begun(Some(kept()), Some(100)), (100, None));
    assert_eq!(begun(Some(kept()), Some(99)), (99, Some(200)));
}

#[test]
fn what_was_safe_when_a_consumer_stopped_is_known_however_short_it_ran() {
    let fresh = start(None, None, &log(10, 1_000), &topic()).unwrap().kept;
    let stopped = fresh.come_to([Offset(200); 2], None, NOW, TOMBSTONES);
    for (later, replay) in [(TOMBSTONES, Some(Offset(200))), (TOMBSTONES / 3, None)] {
        assert_eq!(start_at(NOW.plus(later), stopped.clone(), Some(199)).replay, replay);
    }
}

#[test]
fn what_is_read_once_more_becomes_a_replay_once_it_is_as_old_as_one_and_the_partition_is_claimed_again_for_it() {
    let begun = start_at(NOW, kept(), Some(199));
    assert_eq!(begun.replay, None);
    let (soon, late) = (NOW.plus(TOMBSTONES / 3), NOW.plus(TOMBSTONES));
    let reread = begun.kept.come_to([Offset(199); 2], None, NOW, TOMBSTONES);
    assert!(
        !reread.has_grown_old(Offset(200), soon, TOMBSTONES) && reread.has_grown_old(Offset(200), late, TOMBSTONES)
    );
    let passed = reread.come_to([Offset(200); 2], None, soon, TOMBSTONES);
    assert!(!passed.has_grown_old(Offset(200), late, TOMBSTONES), "nothing of it is read once more");
    let again = start_at(late, reread, Some(199));
    assert_eq!(again.replay, Some(Offset(200)));
    assert!(!again.kept.has_grown_old(Offset(200), late.plus(TOMBSTONES), TOMBSTONES), "the loss is open already");
}

#[test]
fn what_was_applied_long_ago_behind_an_unfinished_record_is_a_replay_although_it_was_never_safe_for_long() {
    let stuck = start(None, None, &log(10, 1_000), &topic()).unwrap().kept;
    let stuck = stuck.come_to([Offset(10), Offset(60)], None, NOW, TOMBSTONES);
    let late = NOW.plus(TOMBSTONES);
    let passed = stuck.come_to([Offset(60), Offset(70)], None, late, TOMBSTONES);
    assert_eq!(start_at(late.plus(TOMBSTONES / 100), passed, Some(10)).replay, Some(Offset(70)));
}

#[test]
fn a_replay_ends_with_the_log_where_that_has_lost_what_was_sent_behind_what_is_safe() {
    let first = start(None, None, &log(10, 1_000), &topic()).unwrap().kept;
    let sent = first.come_to([Offset(20), Offset(90)], None, NOW, TOMBSTONES);
    let late = NOW.plus(TOMBSTONES);
    let replay = |end| start_in(&log(10, end), &topic(), late, Some(sent.clone()), None).unwrap().replay;
    assert_eq!([replay(1_000), replay(50), replay(20)], [Some(Offset(90)), Some(Offset(50)), None]);
}

#[test]
fn a_lost_claim_is_a_replay_of_all_that_the_group_has_committed() {
    assert_eq!(begun(None, Some(500)), (10, Some(500)));
    let start = start(None, Some(5_000), &log(10, 1_000), &topic()).unwrap();
    assert_eq!(start.replay, Some(Offset(1_000)), "no more than there is");
}

#[test]
fn a_committed_offset_beyond_what_is_safe_is_refused_and_may_be_of_a_consumer_of_another_group() {
    let back = Kept { safe: Offset(150), ..kept() };
    for (committed, speaks) in [(151, true), (200, true), (201, false)] {
        let refused = start(Some(back.clone()), Some(committed), &log(10, 1_000), &topic()).unwrap_err();
        let [safe, committed, greatest] = [150, committed, 200].map(Offset);
        assert_eq!(refused, Standstill::ForwardReset { safe, committed, greatest });
        let said = refused.to_string();
        assert_eq!(said.contains("a consumer of another `--group`"), speaks, "{said}");
        assert_eq!(said.contains("tally topic skip"), !speaks, "{said}");
    }
}

#[test]
fn a_record_that_was_not_finished_when_the_log_lost_it_is_forgotten() {
    let last = Some(LastRead { at: Offset(250), fingerprint: 7 });
    let begun = start(Some(Kept { last, sent: Offset(260), ..kept() }), None, &log(10, 240), &topic()).unwrap();
    assert_eq!((begun.at, begun.kept.last), (Offset(200), None), "another one may come there");
}

#[test]
fn what_does_not_fit_the_log_is_named_and_not_begun() {
    let topic = topic();
    let truncated = Standstill::LogTruncated { at: Offset(200), start: Offset(201) };
    assert!(truncated.to_string().contains("1 records were deleted unread, and `tally topic skip --to 201`"));
    assert_eq!(start(Some(kept()), None, &log(201, 1_000), &topic), Err(truncated));
    let beyond = Standstill::BeyondLog { at: Offset(200), end: Offset(199) };
    assert_eq!(start(Some(kept()), Some(50), &log(10, 199), &topic), Err(beyond));
    let replaced = Standstill::TopicReplaced { expected: id("one"), found: id("two") };
    let other = Log { topic: id("two"), ..log(0, 0) };
    assert_eq!(start(Some(kept()), None, &other, &topic), Err(replaced));
    let paused = Topic { is_paused: true, ..topic };
    assert_eq!(start(Some(kept()), None, &log(10, 1_000), &paused), Err(Standstill::Paused));
}

#[test]
fn what_was_applied_and_is_deleted_by_now_need_not_be_read_once_more() {
    let begun = start(Some(kept()), Some(50), &log(120, 1_000), &topic()).unwrap();
    assert_eq!((begun.at, begun.replay), (Offset(120), None));
    let begun = start(Some(kept()), Some(50), &log(200, 1_000), &topic()).unwrap();
    assert_eq!(begun.at, Offset(200));
}

#[test]
fn a_partition_that_an_operator_had_go_on_at_an_offset_begins_there_and_is_no_replay() {
    let skipped = kept().skipped_to(Offset(500), Offset(1_000), NOW);
    assert_eq!((skipped.safe, skipped.greatest, skipped.safe_at), (Offset(500), Offset(500), kept().safe_at));
    assert!(skipped.at > kept().at, "an earlier owner's last word comes too late");
    let begun = start(Some(skipped), Some(200), &log(500, 1_000), &topic()).unwrap();
    assert_eq!((begun.at, begun.replay), (Offset(500), None), "what the group has committed is deleted");
    // The log has lost its tail.
    let cut = kept().skipped_to(Offset(80), Offset(90), NOW);
    let begun = start(Some(cut), Some(80), &log(10, 90), &topic()).unwrap();
    assert_eq!((begun.at, begun.replay), (Offset(80), None));
}

#[test]
fn what_may_be_a_copy_of_records_that_were_read_is_a_replay_until_it_has_passed() {
    let adopted = Topic::adopted(id("two"), 2, vec![Offset(3); 2]);
    let kept = Kept { at: NOW, ..Kept::first(&adopted, Offset(3)).read_again_to(Offset(40)) };
    assert!(kept.replay.is_some());
    let log = Log { topic: id("two"), ..log(3, 50) };
    let begun = start(Some(kept), Some(3), &log, &adopted).unwrap();
    assert_eq!((begun.at, begun.replay), (Offset(3), Some(Offset(40))));
    assert!(Kept::first(&adopted, Offset(3)).read_again_to(Offset(3)).replay.is_none());
}

#[test]
fn a_topic_goes_on_in_the_next_generation_as_long_as_there_is_one() {
    let grown = topic().continued(vec![Offset(100), Offset(120), Offset(0)]).unwrap();
    assert_eq!((grown.current().number, grown.generations.len()), (2, 2));
    let last = Topic::adopted(id("one"), Version::MAX_GENERATION, vec![Offset(0)]);
    assert_eq!(last.continued(vec![Offset(9)]), None);
}

#[test]
fn fewer_partitions_are_refused_and_more_are_named_and_the_known_ones_go_on() {
    let (topic, log, claim) = (topic(), log(10, 1_000), Claim { n: 1, kept: Some(kept()) });
    let with = |partitions, index| {
        Found { claim: &claim, topic: &topic, index, log: &log, partitions, committed: None, there: None }
            .start(NOW, TOMBSTONES)
    };
    assert_eq!(with(1, 0), Err(Standstill::FewerPartitions { expected: 2, found: 1 }));
    assert_eq!(with(3, 0).map(|start| start.at), Ok(Offset(200)));
    assert_eq!(with(3, 2), Err(Standstill::NewPartition { known: 2 }));
}

#[test]
fn an_adopted_topic_is_begun_anew_though_its_claim_tells_of_the_one_before() {
    let adopted =
        Topic { id: id("two"), generations: vec![Generation { number: 2, begins: vec![Offset(3); 2] }], ..topic() };
    let log = Log { topic: id("two"), ..log(3, 50) };
    let begun = start(Some(kept()), None, &log, &adopted).unwrap();
    assert_eq!((begun.at, begun.replay, begun.kept.generation), (Offset(3), None, 2));
    assert!(begun.kept.at > kept().at, "an earlier owner's last word comes too late");
    let start = start(Some(kept()), Some(40), &log, &adopted).unwrap();
    assert_eq!((start.at, start.replay), (Offset(3), None), "what the group has committed is of the topic before");
}

#[test]
fn a_replay_has_no_safe_at_until_it_has_passed_the_greatest_safe_ever_stored() {
    let start = start(Some(kept()), Some(50), &log(10, 1_000), &topic()).unwrap();
    let mut kept = start.kept;
    assert_eq!((kept.safe, kept.safe_at, kept.greatest), (Offset(50), None, Offset(200)));
    for (safe, known) in [(60, false), (199, false), (200, true), (300, true)] {
        let asked = Some(UnixMillis(NOW.0 + safe));
        kept = kept.come_to([Offset(safe); 2], asked, NOW, TOMBSTONES);
        assert_eq!(kept.safe_at, asked.filter(|_| known), "{safe}");
        assert_eq!(kept.replay.is_some(), !known, "{safe}");
    }
    assert_eq!(kept.greatest, Offset(300));
}

#[test]
fn rows_of_which_a_process_says_after_a_long_sleep_that_they_are_safe_may_be_as_old_as_the_sleep() {
    for (slept, committed, replay) in [(20 * HOUR, 259, Some(Offset(260))), (20 * HOUR, 260, None), (1_000, 259, None)]
    {
        let woken = kept().come_to([Offset(260); 2], None, UnixMillis(NOW.0 + slept), TOMBSTONES);
        assert_eq!(start_at(UnixMillis(NOW.0 + slept + 1_000), woken, Some(committed)).replay, replay);
    }
}

#[test]
fn a_restart_in_the_middle_of_a_replay_is_one_too_however_late() {
    let first = start(Some(kept()), Some(50), &log(10, 1_000), &topic()).unwrap();
    let middle = first.kept.come_to([Offset(70); 2], None, NOW, TOMBSTONES);
    assert_eq!(begun(Some(middle.clone()), None), (70, Some(200)));
    let later = start_at(NOW.plus(TOMBSTONES), middle, None);
    assert_eq!((later.at, later.replay, later.kept.safe_at), (Offset(70), Some(Offset(200)), None));
}

#[test]
fn what_was_begun_a_little_earlier_and_not_passed_for_long_is_a_replay_then() {
    let first = start(Some(kept()), Some(150), &log(10, 1_000), &topic()).unwrap();
    assert_eq!(first.replay, None);
    for reached in [150, 170] {
        let kept = first.kept.come_to([Offset(reached); 2], None, NOW.plus(Duration::from_secs(1)), TOMBSTONES);
        let later = start_at(NOW.plus(TOMBSTONES), kept, None);
        let replayed = (later.at, later.replay, later.kept.safe_at);
        assert_eq!(replayed, (Offset(reached), Some(Offset(200)), None), "tombstones behind it have expired");
    }
}

#[test]
fn a_start_that_is_a_little_earlier_keeps_what_was_said_of_the_rows() {
    let start = start(Some(kept()), Some(150), &log(10, 1_000), &topic()).unwrap();
    assert_eq!((start.kept.safe, start.kept.safe_at), (Offset(150), kept().safe_at));
}

#[test]
fn what_is_stored_has_a_later_moment_each_time_even_if_the_clock_goes_back() {
    let kept = kept();
    let next = kept.come_to([Offset(201); 2], None, UnixMillis(5), TOMBSTONES);
    assert_eq!(next.at, UnixMillis(kept.at.0 + 1));
    assert_eq!(next.safe_at, kept.safe_at);
}

#[test]
fn a_claim_remembers_a_few_moments_and_at_least_one_of_half_of_the_tombstones_time_ago() {
    let mut kept = kept();
    for minute in 0..5_000 {
        let now = NOW.plus(Duration::from_secs(60 * minute));
        kept = kept.come_to([Offset(200 + minute); 2], None, now, TOMBSTONES);
        let was = kept.past.at(now.minus(TOMBSTONES / 2)).unwrap().0;
        assert!(minute < 800 || (200 + minute - was).abs_diff(720) <= 61, "{minute}: {was}");
        assert!(kept.past.0.len() <= 14, "{}", kept.past);
    }
    assert_eq!(kept.past.to_string().parse(), Ok(kept.past));
    assert!("5".parse::<Past>().is_err() && "5:x".parse::<Past>().is_err());
}

#[test]
fn everything_acknowledged_by_the_latest_question_whose_end_is_reached_is_safe() {
    let mut ends = Ends::default();
    for (asked, end) in [(1, 10), (2, 10), (3, 20), (4, 30)] {
        ends.take(UnixMillis(asked), Offset(end));
    }
    assert_eq!(ends.reached(Offset(9)), None);
    assert_eq!(ends.reached(Offset(25)), Some(UnixMillis(3)));
    assert_eq!(ends.reached(Offset(25)), None);
    for second in 5..5_000 {
        ends.take(UnixMillis(second), Offset(second * 10));
        assert!(ends.said.len() <= Ends::MOST);
    }
    let middle = ends.reached(Offset(25_000));
    assert!(middle.is_some_and(|asked| (2_400..=2_500).contains(&asked.0)), "{middle:?}");
    assert_eq!(ends.reached(Offset(49_990)), Some(UnixMillis(4_999)));
}

#[test]
fn a_record_has_the_generation_that_it_was_written_in_and_is_routed_by_the_partitions_of_that() {
    let subject = |partitions| {
        let hash = |n: &u32| crate::event::partition_of(n.to_string().as_bytes(), partitions);
        (0..)
            .find(|n| hash(n) == 0 && crate::event::partition_of(n.to_string().as_bytes(), 2) == 1)
            .unwrap()
            .to_string()
    };
    let grown = Topic {
        generations: vec![
            Generation { number: 1, begins: vec![Offset(10), Offset(20)] },
            Generation { number: 2, begins: vec![Offset(100), Offset(120), Offset(0)] },
        ],
        ..topic()
    };
    let partition = Partition { topic: "likes".into(), index: 0 };
    let moved = subject(3);
    let of = |offset| grown.version(&partition, Offset(offset), &moved);
    assert_eq!((of(99).generation(), of(99).is_routed()), (1, false));
    assert_eq!((of(100).generation(), of(100).is_routed()), (2, true));
    assert!(grown.version_of_sum(1, Offset(119)).is_routed());
    assert_eq!(grown.version_of_sum(2, Offset(0)).generation(), 2);
    assert_eq!((grown.begin_of(0), grown.begin_of(2), grown.begin_of(3)), (Some(Offset(10)), Some(Offset(0)), None));
}

#[test]
fn earlier_times_at_which_the_rows_were_complete_stay_until_a_replay_or_another_generation_begins() {
    let moment = |later: u64| UnixMillis(NOW.0 + later);
    let times = |kept: &Kept| {
        let mut times = SafeTimes::default();
        times.take(kept);
        times
    };
    let next = kept().come_to([Offset(201); 2], Some(moment(500)), moment(1_000), TOMBSTONES);
    assert_eq!(times(&next).by(NOW), kept().safe_at, "what was stored before");
    let begun = start_at(moment(9_000), next.clone(), None).kept;
    assert_eq!((times(&begun).by(NOW), times(&begun).by(moment(8_000))), (kept().safe_at, Some(moment(500))));
    let skipped = begun.skipped_to(Offset(300), Offset(900), moment(10_000));
    assert_eq!(times(&skipped).by(NOW), kept().safe_at);
    let replay = start_at(moment(9_000), next.clone(), Some(99)).kept;
    assert_eq!((times(&replay).by(NOW), times(&replay).by(UnixMillis::MAX)), (None, None));
    let replayed = replay.come_to([Offset(250); 2], Some(moment(11_000)), moment(12_000), TOMBSTONES);
    assert_eq!(
        (times(&replayed).by(moment(11_999)), times(&replayed).by(moment(12_000))),
        (None, Some(moment(11_000)))
    );
    let mut grown = topic();
    grown.generations.push(Generation { number: 2, begins: vec![Offset(10), Offset(20)] });
    let anew = start(Some(next), None, &log(10, 1_000), &grown).unwrap().kept;
    assert_eq!(Vec::from_iter(anew.earlier.pairs()), [(moment(1_000), moment(500))]);
}
