//! One machine, step by step.

use super::*;
use crate::event::partition_of;
use crate::ids::{MemberKey, Region};
use crate::tally::Regions;
use crate::weight::Weight;

const SECOND: Duration = Duration::from_secs(1);
const PARTITIONS: u32 = 4;
const RULES: Rules = Rules {
    age: Duration::from_millis(500),
    store: SECOND,
    bytes: 64 << 20,
    patience: Duration::from_secs(600),
    farewell: Duration::from_secs(2),
};

struct Bench {
    machine: Changes,
    now: Duration,
    asked: Vec<(RequestId, Request)>,
    told: Vec<Effect>,
}

impl Bench {
    fn with(rules: Rules) -> Self {
        let now = Duration::from_secs(10);
        let machine = Changes::new(Ordinal(7), Fed::default(), PARTITIONS, rules, Now { at: now, ..Now::default() });
        Self { machine, now, asked: Vec::new(), told: Vec::new() }
    }

    fn new() -> Self {
        Self::with(RULES)
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(Now { at: self.now, ..Now::default() }, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask(id, request) => self.asked.push((id, request)),
                other => self.told.push(other),
            }
        }
    }

    /// Hands records in and lets their age pass.
    fn seal(&mut self, records: Vec<Record>) {
        self.step(Input::Records(records));
        self.pass(RULES.age);
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.step(Input::Woke);
    }

    /// The messages under way.
    fn sent(&self) -> Vec<Message> {
        let messages = self.asked.iter().filter_map(|(_, request)| match request {
            Request::Send { message, .. } => Some(Message::read(&message.value).unwrap()),
            _ => None,
        });
        messages.collect()
    }

    /// What is to be stored.
    fn storing(&self) -> Option<&Request> {
        self.asked.iter().map(|(_, request)| request).find(|request| !matches!(request, Request::Send { .. }))
    }

    /// Answers the first message under way.
    fn answer(&mut self, outcome: Result<(), Fault>) {
        let at =
            self.asked.iter().position(|(_, request)| matches!(request, Request::Send { .. })).expect("one is sent");
        let (id, _) = self.asked.remove(at);
        self.step(Input::Answered(id, Answer::Sent(outcome)));
    }

    fn stored(&mut self) -> Request {
        let is_stored = |(_, request): &(RequestId, Request)| !matches!(request, Request::Send { .. });
        let at = self.asked.iter().position(is_stored).expect("something is stored");
        let (id, request) = self.asked.remove(at);
        self.step(Input::Answered(id, Answer::Done));
        request
    }
}

fn record(sequence: u64, subject: &str, before: i64, after: i64) -> Record {
    let key = crate::ids::RowKey {
        counter: crate::ids::CounterId::likes(subject.parse().unwrap()),
        shard: crate::ids::Shard::new(0).unwrap(),
    };
    let weight = |n| Weight::new(n).unwrap();
    let kind = RecordKind::Row {
        key,
        member: MemberKey::new("u").unwrap(),
        before: weight(before),
        after: weight(after),
        span: None,
        regions: None,
    };
    Record { sequence: sequence.into(), written: UnixMillis(sequence * 1000), kind }
}

fn put(sequence: u64, subject: &str) -> Record {
    record(sequence, subject, 0, 1)
}

/// Subjects of two partitions.
fn subjects() -> [String; 2] {
    let of = |partition| (0..).map(|n| format!("p{n}")).find(|p| partition_of(p.as_bytes(), PARTITIONS) == partition);
    [of(0).unwrap(), of(1).unwrap()]
}

fn transient() -> Fault {
    Fault::Transient("no answer".to_owned())
}

#[test]
fn a_message_has_the_documented_form_and_is_read_as_it_was_written() {
    let regions = |before, after| {
        let region = |text: Option<&str>| text.and_then(Region::new);
        Some(Box::new(Regions { before: region(before), after: region(after) }))
    };
    let in_regions = |mut record: Record, of| {
        if let RecordKind::Row { regions, .. } = &mut record.kind {
            *regions = of;
        }
        record
    };
    let mut bench = Bench::with(RULES);
    bench.machine.partitions = 1;
    let none = record(4, "p-1", 1, 1);
    let moved = in_regions(record(5, "p-1", 1, 1), regions(Some("us"), Some("eu")));
    let put = in_regions(put(3, "p-1"), regions(None, Some("us")));
    bench.seal(vec![put, none, moved, record(6, "a\"b", 1, 0)]);
    let Request::Send { message, again: None } = &bench.asked[0].1 else { panic!("{:?}", bench.asked) };
    let sequence = |n: u64| Sequence::from(n).as_str().to_owned();
    let [three, five, six] = [3, 5, 6].map(sequence);
    assert_eq!(
        String::from_utf8(message.value.clone()).unwrap(),
        format!(
            r#"{{"v":1,"g":7,"changes":[["p-1","likes","us",0,"us",1,3,"{three}"],["p-1","likes","us",1,"eu",1,5,"{five}"],["a\"b","likes",null,1,null,0,6,"{six}"]]}}"#
        )
    );
    let read = Message::read(&message.value).unwrap();
    assert_eq!((read.shard, read.changes.len(), &*read.changes[2].subject), (Ordinal(7), 3, "a\"b"));
}

#[test]
fn what_is_no_message_of_this_version_is_refused() {
    assert_eq!(Message::read(br#"{"v":2,"g":1,"changes":7}"#), Err(BadMessage::Version(2)));
    for bad in [
        &b""[..],
        b"[]",
        br#"{"v":1,"g":1}"#,
        br#"{"v":1,"g":1,"changes":[["p","likes",null,0,null,1,5]]}"#,
        br#"{"v":1,"g":1,"changes":[["p","Likes",null,0,null,1,5,"1"]]}"#,
        br#"{"v":1,"g":1,"changes":[["p","likes","US",0,null,1,5,"1"]]}"#,
        br#"{"v":1,"g":1,"changes":[["","likes",null,0,null,1,5,"1"]]}"#,
    ] {
        assert!(matches!(Message::read(bad), Err(BadMessage::Malformed(_))), "{}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn a_partition_has_one_message_under_way_and_the_others_do_not_wait_for_it() {
    let [first, second] = subjects();
    let mut bench = Bench::new();
    bench.seal(vec![put(1, &first)]);
    bench.seal(vec![put(2, &first), put(3, &second)]);
    let positions = |bench: &Bench| bench.sent().iter().map(|message| message.changes[0].second).collect::<Vec<_>>();
    assert_eq!(positions(&bench), [1, 3]);
    bench.answer(Err(transient()));
    assert_eq!(positions(&bench), [3, 1], "the same again");
    let again = Some(Again { fault: transient(), tries: 0 });
    assert!(
        bench.asked.iter().any(|(_, request)| matches!(request, Request::Send { again: said, .. } if *said == again))
    );
    bench.answer(Ok(()));
    assert_eq!(positions(&bench), [1]);
    assert_eq!(bench.storing(), None, "the first of all is not acknowledged");
    bench.answer(Ok(()));
    assert_eq!(positions(&bench), [2]);
    assert_eq!(bench.stored(), Request::StoreFed { to: 1.into(), at: UnixMillis(1000) });
    bench.answer(Ok(()));
    assert_eq!(bench.storing(), None, "it was stored just now");
    bench.pass(SECOND);
    assert_eq!(bench.stored(), Request::StoreFed { to: 3.into(), at: UnixMillis(3000) });
}

#[test]
fn a_prefix_is_cut_for_all_partitions_before_a_message_grows_too_large() {
    let [first, second] = subjects();
    let mut bench = Bench::new();
    let long = format!("{first}{}", "x".repeat(200));
    let other = (0..).map(|n| format!("{long}{n}")).find(|p| partition_of(p.as_bytes(), PARTITIONS) == 0).unwrap();
    let many = (2..4000).map(|sequence| put(sequence, &other));
    bench.step(Input::Records(std::iter::once(put(1, &second)).chain(many).collect()));
    let [one, two] = &bench.sent()[..] else { panic!("{} messages", bench.sent().len()) };
    assert!(one.changes.len() > 1000 && two.changes.len() == 1);
    let Effect::Sealed { records, messages: 2, bytes } = bench.told[0] else { panic!("{:?}", bench.told) };
    assert_eq!(records, one.changes.len() + 1);
    assert!(bytes <= 513 * 1024, "{bytes}");
    let sizes = bench.asked.iter().filter_map(|(_, request)| match request {
        Request::Send { message, .. } => Some(message.value.len()),
        _ => None,
    });
    assert!(sizes.max() <= Some(512 * 1024 + 64));
}

#[test]
fn records_without_an_entry_are_fed_at_once_and_those_fed_already_are_passed_over() {
    let mut bench = Bench::new();
    bench.seal(vec![record(1, "p", 1, 1)]);
    assert_eq!(bench.stored(), Request::StoreFed { to: 1.into(), at: UnixMillis(1000) });
    bench.seal(vec![put(1, "p")]);
    assert!(bench.sent().is_empty() && bench.machine.waiting() == 0);
    bench.step(Input::UpTo(UnixMillis(9_000)));
    bench.pass(SECOND);
    assert_eq!(bench.stored(), Request::StoreFedAt(UnixMillis(9_000)));
    assert_eq!((bench.machine.fed_at(), bench.machine.wake_at()), (UnixMillis(9_000), None));
}

#[test]
fn nothing_is_stored_as_fed_that_was_read_behind_what_waits() {
    let mut bench = Bench::new();
    bench.seal(vec![put(1, "p")]);
    bench.step(Input::UpTo(UnixMillis(9_000)));
    bench.pass(SECOND);
    assert_eq!(bench.storing(), None);
    bench.answer(Ok(()));
    assert_eq!(bench.stored(), Request::StoreFed { to: 1.into(), at: UnixMillis(9_000) });
}

#[test]
fn what_waits_too_long_is_a_lapse_that_is_stored_before_the_next_message_is_sent() {
    let mut bench = Bench::new();
    bench.seal(vec![put(1, "p"), put(2, "p")]);
    let late = bench.asked[0].0;
    bench.seal(vec![put(3, "p")]);
    assert_eq!(bench.machine.wake_at(), Some(bench.now - RULES.age + RULES.patience));
    bench.pass(RULES.patience - RULES.age);
    let seconds = Seconds { first: 1, last: 3 };
    assert!(bench.told.contains(&Effect::GaveUp(seconds)), "{:?}", bench.told);
    assert_eq!(
        (bench.storing(), bench.machine.waiting()),
        (Some(&Request::StoreLapse(Lapse { shard: Ordinal(7), seconds })), 0)
    );
    bench.asked.retain(|(_, request)| !matches!(request, Request::Send { .. }));
    bench.seal(vec![put(4, "p")]);
    assert!(bench.sent().is_empty(), "the lapse is not stored");
    bench.step(Input::Answered(late, Answer::Sent(Ok(()))));
    bench.stored();
    assert_eq!(bench.sent()[0].changes[0].second, 4);
    assert_eq!(bench.stored(), Request::StoreFed { to: 3.into(), at: UnixMillis(3_000) });
}

#[test]
fn more_bytes_than_a_process_may_keep_are_given_up() {
    let mut bench = Bench::with(Rules { bytes: 1_000, ..RULES });
    bench.seal(vec![put(1, "p")]);
    assert!(bench.told.iter().all(|effect| !matches!(effect, Effect::GaveUp(_))));
    bench.step(Input::Others(1_000));
    assert!(bench.told.contains(&Effect::GaveUp(Seconds { first: 1, last: 1 })));
    bench.step(Input::Others(0));
    bench.asked.retain(|(_, request)| !matches!(request, Request::Send { .. }));
    bench.stored();
    bench.seal((2..9).map(|sequence| put(sequence, "p")).collect());
    assert_eq!(bench.sent().len(), 1, "it goes on behind them");
}

#[test]
fn a_weight_that_is_unreadable_and_a_loss_of_stream_are_lapses_in_their_place() {
    let mut bench = Bench::new();
    let mut unreadable = put(2, "p");
    unreadable.kind = RecordKind::Unreadable { key: "p#0".parse().unwrap(), member: MemberKey::new("u").unwrap() };
    bench.seal(vec![put(1, "p"), unreadable, put(3, "p")]);
    assert_eq!(bench.sent().len(), 1);
    bench.answer(Ok(()));
    let lapse = |first, last| Request::StoreLapse(Lapse { shard: Ordinal(7), seconds: Seconds { first, last } });
    assert_eq!((bench.stored(), bench.sent().len()), (lapse(2, 2), 1));
    assert_eq!(bench.stored(), Request::StoreFed { to: 2.into(), at: UnixMillis(2_000) });
    bench.answer(Ok(()));
    bench.step(Input::Lost(UnixMillis(60_000)));
    assert_eq!(bench.stored(), lapse(1, 62), "by the clock of a process, and those of others may differ");
}

#[test]
fn a_stream_shard_is_fed_once_all_of_it_is() {
    let mut bench = Bench::new();
    bench.step(Input::Records(vec![put(1, "p")]));
    bench.step(Input::EndOfShard);
    assert_eq!((bench.sent().len(), bench.storing()), (1, None));
    bench.answer(Ok(()));
    assert_eq!(bench.stored(), Request::StoreEnd(UnixMillis(1_000)));
    assert!(bench.told.contains(&Effect::Ended(End::Fed)));
    assert!(bench.asked.is_empty());
}

#[test]
fn a_stopped_reader_leaves_what_it_passed_on_a_moment() {
    let mut bench = Bench::new();
    bench.step(Input::Records(vec![put(1, "p")]));
    bench.step(Input::ReaderStopped);
    assert_eq!(bench.machine.wake_at(), Some(bench.now + RULES.farewell));
    bench.pass(RULES.farewell);
    assert!(bench.told.contains(&Effect::Ended(End::Stopped)) && bench.storing().is_none());
    let mut bench = Bench::new();
    bench.step(Input::Records(vec![put(1, "p")]));
    bench.step(Input::ReaderStopped);
    bench.answer(Ok(()));
    assert_eq!(bench.stored(), Request::StoreFed { to: 1.into(), at: UnixMillis(1_000) });
    assert!(bench.told.contains(&Effect::Ended(End::Stopped)), "{:?}", bench.told);
}
