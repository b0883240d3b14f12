//! One attempt at a time, told what a table would say; races are the models' business.

use super::*;
use crate::Map;
use crate::counter::{ShardTally, Window};
use crate::window::roster::by_name;

const RULES: AttemptRules = AttemptRules {
    guard: Duration::from_secs(2),
    report: Duration::from_secs(30),
    passing: Duration::from_secs(120),
    force: false,
};
const RUN: u128 = 7;

/// A table of one row key: what it answers, and what it was asked.
struct Table {
    /// Pages of rows, by the names of their members.
    pages: Vec<Vec<&'static str>>,
    tally: ShardTally,
    report: Option<Report>,
    as_of: UnixMillis,
    /// What becomes of verdicts; the last answer stands for all that follow.
    judged: Vec<Judged>,
    /// Rows that may be held.
    room: u64,
    now: Now,
    asked: Vec<Effect>,
}

fn key() -> RowKey {
    "p#0".parse().unwrap()
}

fn member(name: &str) -> MemberKey {
    MemberKey::new(name).unwrap()
}

impl Table {
    /// Rows as given and a count of as many, which a window without changes proves.
    fn of(pages: &[&[&'static str]]) -> Self {
        let rows = pages.iter().map(|page| page.len()).sum::<usize>().try_into().unwrap();
        let window = Some(Window { run: RUN.into(), rows });
        Self {
            pages: pages.iter().map(|page| page.to_vec()).collect(),
            tally: ShardTally { rows, window, ..ShardTally::default() },
            report: Some(Report { key: key(), run: RUN.into(), touched: Map::default() }),
            as_of: UnixMillis::MAX,
            judged: vec![Judged::Stands],
            room: u64::MAX,
            now: Now { at: Duration::ZERO, wall: UnixMillis(1_000_000) },
            asked: Vec::new(),
        }
    }

    /// The count is this much more than the rows.
    fn drifted(mut self, by: i64) -> Self {
        self.tally.rows += by;
        self.tally.window.as_mut().unwrap().rows += by;
        self
    }

    fn counter(&self) -> Counter {
        Counter { shards: [(key().shard, self.tally.clone())].into(), ..Counter::default() }
    }

    fn answer(&mut self, effect: &Effect) -> Option<Input> {
        Some(match effect {
            Effect::TakeRoom(_) => Input::Room(true),
            Effect::GrowRoom(rows) => Input::Room(*rows <= self.room),
            Effect::ReadMarker => Input::Marker(None),
            Effect::PutMarker { .. } => Input::Put(MarkerPut::Put),
            Effect::WakeAt(until) => {
                let waited = *until - self.now.at;
                self.now = Now { at: *until, wall: self.now.wall.plus(waited) };
                Input::Woke
            }
            Effect::ReadCounter => Input::Counter(Some(self.counter())),
            Effect::ReadRows(after) => {
                let page = after.as_ref().map_or(0, |cursor| cursor.0.parse::<usize>().unwrap());
                let rows = self.pages[page].iter().map(|name| (member(name), Weight::ONE)).collect();
                Input::Rows(rows, (page + 1 < self.pages.len()).then(|| Cursor((page + 1).to_string())))
            }
            Effect::TakeTurn => Input::Turn,
            Effect::ReadReport => Input::Report(self.report.clone()),
            Effect::ReadApplied => Input::Applied(Some(self.as_of)),
            Effect::Judge(..) if self.judged.len() > 1 => Input::Judged(self.judged.remove(0)),
            Effect::Judge(..) => Input::Judged(self.judged[0]),
            Effect::BackOff(_) => Input::Woke,
            Effect::End(_) => return None,
        })
    }

    fn attempt(expected: u64, rules: AttemptRules) -> Attempt {
        Attempt::new(key(), RUN.into(), expected, rules, Roster::new(by_name))
    }

    fn end(&mut self) -> Ending {
        self.end_under(RULES)
    }

    fn end_under(&mut self, rules: AttemptRules) -> Ending {
        let (mut attempt, mut effects, mut input) = (Self::attempt(10, rules), Vec::new(), Some(Input::Begin));
        while let Some(told) = input {
            attempt.step(self.now, told, &mut effects);
            let effect = effects.pop().expect("every answer leads on");
            assert!(effects.is_empty(), "one thing at a time");
            input = self.answer(&effect);
            self.asked.push(effect);
        }
        match self.asked.last() {
            Some(Effect::End(ending)) => *ending,
            other => panic!("{other:?}"),
        }
    }

    fn asked(&self, wanted: impl Fn(&Effect) -> bool) -> usize {
        self.asked.iter().filter(|effect| wanted(effect)).count()
    }
}

fn judged(before: i64, after: i64) -> Ending {
    Ending::Judged(Judgement { before, after, suspect: false })
}

#[test]
fn an_attempt_asks_for_everything_in_the_order_of_the_protocol() {
    let mut table = Table::of(&[&["a", "b"], &["c"]]);
    assert_eq!(table.end(), judged(3, 3));
    let (low, high) = (Marker::low(RUN.into()), Marker::high(RUN.into()));
    let at = |seconds| Effect::WakeAt(Duration::from_secs(seconds));
    let judgement = Judgement { before: 3, after: 3, suspect: false };
    let verdict = Verdict { key: key(), run: RUN.into(), correction: 0, form: Form::Plain };
    assert_eq!(
        table.asked,
        [
            Effect::TakeRoom(10),
            Effect::ReadMarker,
            Effect::PutMarker { marker: low, required: None },
            at(2),
            Effect::ReadCounter,
            Effect::ReadRows(None),
            Effect::ReadRows(Some(Cursor("1".to_owned()))),
            at(4),
            Effect::TakeTurn,
            Effect::PutMarker { marker: high, required: Some(low) },
            Effect::ReadReport,
            Effect::ReadCounter,
            Effect::Judge(verdict, judgement),
            Effect::End(judged(3, 3)),
        ]
    );
}

#[test]
fn a_wait_that_ends_too_early_goes_on() {
    let (mut attempt, mut effects) = (Table::attempt(1, RULES), Vec::new());
    let marker = Input::Marker(None);
    for input in [Input::Begin, Input::Room(true), marker, Input::Put(MarkerPut::Put), Input::Woke] {
        effects.clear();
        attempt.step(Now::default(), input, &mut effects);
    }
    assert_eq!(effects, [Effect::WakeAt(RULES.guard)]);
}

#[test]
fn an_answer_that_is_not_waited_for_changes_nothing() {
    let mut attempt = Table::attempt(1, RULES);
    attempt.step(Now::default(), Input::Begin, &mut Vec::new());
    let before = attempt.clone();
    let answers = [Input::Begin, Input::Marker(None), Input::Put(MarkerPut::Put), Input::Woke, Input::Turn];
    for answer in answers.into_iter().chain([Input::Judged(Judged::Stands), Input::Report(None)]) {
        let mut effects = Vec::new();
        attempt.step(Now::default(), answer, &mut effects);
        assert_eq!((&attempt, effects), (&before, Vec::new()));
    }
}

#[test]
fn rows_beyond_the_room_are_asked_for_and_without_room_the_attempt_ends() {
    let rows: Vec<String> = (0..24).map(|n| format!("u-{n}")).collect();
    let rows: Vec<&'static str> = rows.into_iter().map(|row| &*row.leak()).collect();
    let pages: Vec<&[&'static str]> = rows.chunks(8).collect();
    let mut table = Table::of(&pages);
    assert_eq!(table.end(), judged(24, 24));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::GrowRoom(16 | 24))), 2);
    let mut table = Table { room: 20, ..Table::of(&pages) };
    assert_eq!(table.end(), Ending::Again(Again::NoRoom(24)));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::PutMarker { .. })), 1, "it is not closed");
}

#[test]
fn a_report_is_looked_for_again_and_again_and_not_for_ever() {
    let mut table = Table { report: None, ..Table::of(&[&["a"]]) };
    assert_eq!(table.end(), Ending::Again(Again::NoReport));
    let looks = table.asked(|effect| *effect == Effect::ReadReport);
    assert!((15..25).contains(&looks), "{looks} looks in {:?}", RULES.report);
    assert!(table.now.at < RULES.guard * 2 + RULES.report + LOOKS.1);
}

#[test]
fn a_suspect_is_judged_once_every_stream_shard_has_passed_and_by_the_switches_read_first() {
    let mut table = Table::of(&[&["a"]]);
    (table.tally.suspect, table.tally.switches) = (true, 3);
    table.end();
    let suspect =
        |effect: &Effect| matches!(effect, Effect::Judge(verdict, _) if verdict.form == Form::Suspect { switches: 3 });
    assert_eq!(table.asked(suspect), 1);
    let closed = table.asked.iter().position(|effect| *effect == Effect::TakeTurn).unwrap();
    assert!(table.asked[closed..].contains(&Effect::ReadApplied));

    // Exactly the guard time behind the closing marker is not past it.
    let closes_at = UnixMillis(1_000_000).plus(RULES.guard * 2);
    let mut table = Table { as_of: closes_at.plus(RULES.guard), ..table };
    table.asked.clear();
    table.now = Now { at: Duration::ZERO, wall: UnixMillis(1_000_000) };
    assert_eq!(table.end(), Ending::Again(Again::NotPassed));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::Judge(..))), 0);
}

#[test]
fn a_verdict_certainly_not_carried_out_is_sent_again_and_an_unknown_one_never() {
    let mut table = Table { judged: vec![Judged::NotDone, Judged::NotDone, Judged::Stands], ..Table::of(&[&["a"]]) };
    assert_eq!(table.end(), judged(1, 1));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::Judge(..))), 3);
    let mut table = Table { judged: vec![Judged::NotDone], ..Table::of(&[&["a"]]) };
    assert_eq!(table.end(), Ending::Again(Again::Void));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::Judge(..))), 9);
    let mut table = Table { judged: vec![Judged::Void], ..Table::of(&[&["a"]]) };
    assert_eq!(table.end(), Ending::Again(Again::Void));
    assert_eq!(table.asked(|effect| matches!(effect, Effect::Judge(..))), 1);
}

#[test]
fn a_large_correction_is_withheld_unless_a_person_insists() {
    let withheld = Judgement { before: 5_001, after: 1, suspect: false };
    assert_eq!(Table::of(&[&["a"]]).drifted(5_000).end(), Ending::Withheld(withheld));
    let forced = AttemptRules { force: true, ..RULES };
    assert_eq!(Table::of(&[&["a"]]).drifted(5_000).end_under(forced), Ending::Judged(withheld));
    assert_eq!(Table::of(&[&["a"]]).drifted(999).end(), judged(1_000, 1));
}

#[test]
fn a_counter_without_this_windows_token_is_not_judged() {
    let mut table = Table::of(&[&["a"]]);
    table.tally.window = Some(Window { run: 8.into(), rows: 1 });
    assert_eq!(table.end(), Ending::Again(Again::TokenGone));
}

/// What the marker that stands says after a put of unclear outcome.
fn after_unclear(closing: bool, found: Option<Marker>) -> Vec<Effect> {
    let (mut table, mut attempt) = (Table::of(&[&["a"]]), Table::attempt(1, RULES));
    let (mut effects, mut input) = (Vec::new(), Input::Begin);
    loop {
        attempt.step(table.now, input, &mut effects);
        let effect = effects.pop().unwrap();
        let is_it = matches!(effect, Effect::PutMarker { marker, .. } if (marker.phase == Phase::High) == closing);
        if is_it {
            attempt.step(table.now, Input::Put(MarkerPut::Unclear), &mut effects);
            assert_eq!(effects.pop(), Some(Effect::ReadMarker));
            attempt.step(table.now, Input::Marker(found), &mut effects);
            return effects;
        }
        input = table.answer(&effect).unwrap();
    }
}

#[test]
fn what_became_of_a_put_is_read_off_the_marker_that_stands() {
    let (low, high, other) = (Marker::low(RUN.into()), Marker::high(RUN.into()), Marker::low(8.into()));
    assert!(matches!(after_unclear(false, Some(low))[..], [Effect::WakeAt(_)]));
    for found in [None, Some(other)] {
        assert_eq!(after_unclear(false, found), [Effect::End(Ending::Again(Again::NotOpened))], "never put again");
    }
    assert_eq!(after_unclear(true, Some(high)), [Effect::ReadReport]);
    assert_eq!(after_unclear(true, Some(low)), [Effect::PutMarker { marker: high, required: Some(low) }]);
    assert_eq!(after_unclear(true, Some(other)), [Effect::End(Ending::Again(Again::TakenOver))]);
}
