use std::time::Duration;

use super::*;
use crate::fault::Fault;
use crate::ids::Ordinal;
use crate::ledger::Fed;
use crate::lineage::{Checkpoint, Listed};
use crate::ports::{Lease, LeaseTaken, Registry, ShardState, Worker};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Now = Now { at: Duration::ZERO, wall: UnixMillis(3_600_000) };

fn rules(me: Option<&str>) -> Rules {
    let sharing = me.map(|me| Sharing { me: Worker(me.into()), stale: SECOND * 6 });
    Rules { sharing, look: SECOND * 2, listing: SECOND * 30, unread: SECOND * 18 }
}

fn listed(name: &str, parent: Option<&str>) -> Listed {
    Listed { id: name.into(), parent: parent.map(StreamShardId::from), ended: false }
}

fn state(name: &str, parent: Option<&str>, ordinal: u64, closed: bool) -> ShardState {
    let parent = parent.map(StreamShardId::from);
    let (id, ordinal, at) = (name.into(), Ordinal(ordinal), NOW.wall);
    ShardState {
        checkpoint: Checkpoint { id, parent, ordinal, sequence: None, closed, at },
        fed: Fed::default(),
        lease: None,
    }
}

/// A machine, and the stream and the checkpoints that answer it.
struct Bench {
    machine: Shards,
    info: StreamInfo,
    listing: Vec<Listed>,
    registry: Option<Registry>,
    states: Vec<ShardState>,
    gaps: bool,
    /// Everything the machine asked for but what a look reads, and every other effect but waits and pictures.
    seen: Vec<Effect>,
    waits: Vec<(Wait, Duration)>,
    /// Records and probes that are not answered yet.
    open: Vec<Request>,
    shown: Arc<Picture>,
}

impl Bench {
    fn new(me: Option<&str>) -> Self {
        let info = StreamInfo { label: "l".into(), created: NOW.wall, table_created: NOW.wall };
        let registry = Some(Registry { next: Ordinal(9), floor: None });
        Self {
            machine: Shards::new(rules(me), info.clone()),
            info,
            listing: vec![],
            registry,
            states: vec![],
            gaps: false,
            seen: vec![],
            waits: vec![],
            open: vec![],
            shown: Arc::default(),
        }
    }

    /// Hands in one input, and answers what a look reads.
    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.step_at(Duration::ZERO, input)
    }

    fn step_at(&mut self, at: Duration, input: Input) -> Vec<Effect> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.machine.step(Now { at, ..NOW }, input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Ask(request) => match self.answer(&request) {
                        Some(answer) => inputs.push_back(Input::Answered(request, answer)),
                        None => {
                            self.open.push(request.clone());
                            self.seen.push(Effect::Ask(request));
                        }
                    },
                    Effect::Wait(wait, span) => self.waits.push((wait, span)),
                    Effect::Show(picture) => self.shown = picture,
                    other => self.seen.push(other),
                }
            }
        }
        std::mem::take(&mut self.seen)
    }

    fn answer(&self, request: &Request) -> Option<Answer> {
        match request {
            Request::List => Some(Answer::Listed(self.info.clone(), self.listing.clone())),
            Request::Children(parent) => {
                let children = self.listing.iter().filter(|shard| shard.parent.as_ref() == Some(parent));
                Some(Answer::Children(Some(children.cloned().collect())))
            }
            Request::Registry => Some(Answer::Registry(self.registry)),
            Request::States => Some(Answer::States(self.states.clone())),
            Request::Gaps => Some(Answer::Gaps(self.gaps)),
            _ => None,
        }
    }

    /// Looks, with a listing of its own.
    fn look(&mut self) -> Vec<Effect> {
        let mut effects = self.step(Input::Woke(Wait::Spacing));
        effects.extend(self.step(Input::Woke(Wait::Listing)));
        effects.extend(self.step(Input::Woke(Wait::Look)));
        effects
    }

    /// Answers the oldest request that is open.
    fn done(&mut self, answer: Answer) -> Vec<Effect> {
        let request = self.open.remove(0);
        self.step(Input::Answered(request, answer))
    }
}

fn health(effects: &[Effect]) -> &Health {
    let report = effects.iter().rev().find_map(|effect| match effect {
        Effect::Report(health) => Some(health),
        _ => None,
    });
    report.expect("the look has ended")
}

fn place(effects: &[Effect], place: Place) -> usize {
    health(effects).places.as_ref().expect("it was seen")[&place]
}

#[test]
fn shards_without_a_number_get_one_ancestors_first_and_are_looked_at_again_before_they_are_read() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("a", Some("z")), listed("z", None)];
    let number = |name: &str, parent: Option<&str>| {
        let parent = parent.map(StreamShardId::from);
        Effect::Ask(Request::Number { shard: name.into(), parent, at: NOW.wall })
    };
    assert_eq!(bench.look(), [number("z", None)]);
    assert_eq!(bench.done(Answer::Done), [number("a", Some("z"))], "one after another");
    bench.states = vec![state("z", None, 1, false), state("a", Some("z"), 2, false)];
    let effects = bench.done(Answer::Done);
    assert_eq!(
        effects[0],
        Effect::Read(bench.states[0].checkpoint.clone(), Fed::default()),
        "the child waits for its parent"
    );
    assert_eq!((place(&effects, Place::Here), place(&effects, Place::Waiting)), (1, 1));
}

#[test]
fn a_number_that_is_not_given_leads_to_a_new_listing() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("a", None)];
    bench.look();
    let fault = Fault::Transient("a later stream".into());
    let effects = bench.done(Answer::Failed(fault.clone()));
    assert_eq!(health(&effects).trouble, Some(Trouble::Unknown(fault)));
    bench.info.label = "new".into();
    bench.step(Input::Woke(Wait::Spacing));
    let effects = bench.step(Input::Woke(Wait::Look));
    assert_eq!(effects[0], Effect::Tell(Event::NewStream("new".into())));
}

#[test]
fn a_child_numbered_together_with_its_parent_is_dated_like_the_nearest_ancestor_that_has_a_number() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("g", None), listed("p", Some("g")), listed("c", Some("p"))];
    let mut known = state("g", None, 1, false);
    known.checkpoint.at = UnixMillis(NOW.wall.0 + 5_000);
    let at = known.checkpoint.at;
    bench.states = vec![known];
    let number =
        |name: &str, parent: &str| Effect::Ask(Request::Number { shard: name.into(), parent: Some(parent.into()), at });
    assert_eq!(bench.look(), [number("p", "g")]);
    assert_eq!(bench.done(Answer::Done), [number("c", "p")]);
}

#[test]
fn a_shard_that_two_listings_leave_out_is_asked_for_recorded_held_behind_and_closed() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("c", Some("p"))];
    bench.states = vec![state("p", None, 1, false), state("c", Some("p"), 2, false)];
    assert_eq!(bench.look().len(), 1, "one listing may be wrong: nothing but the report");
    assert_eq!(bench.look(), [Effect::Ask(Request::Probe("p".into()))]);
    let behind = Behind::Shard("p".into());
    let record = Request::Record(behind.clone(), Loss::Vanished("p".into()));
    let effects = bench.done(Answer::Readable(false));
    assert_eq!(effects[0], Effect::Ask(record));
    assert!(bench.shown.open_gaps, "from the moment it is met nothing is called exact");
    bench.look();
    assert_eq!(bench.open.len(), 1, "it is recorded once, and not closed before the hold is over");
    bench.waits.clear();
    bench.done(Answer::Done);
    assert_eq!(bench.waits[0], (Wait::Hold(behind.clone()), crate::lineage::HOLD));
    bench.look();
    assert_eq!(bench.open, [], "recorded is not over");
    let close = Request::Close { shard: "p".into(), at: NOW.wall };
    assert_eq!(bench.step_at(SECOND * 8, Input::Woke(Wait::Hold(behind)))[0], Effect::Ask(close));
    bench.states[0].checkpoint.closed = true;
    assert_eq!(bench.done(Answer::Done)[0], Effect::Read(bench.states[1].checkpoint.clone(), Fed::default()));
}

#[test]
fn a_living_shard_that_listings_leave_out_is_read_on() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    bench.listing.clear();
    bench.look();
    bench.look();
    let effects = bench.done(Answer::Readable(true));
    assert_eq!(effects[0], Effect::Tell(Event::Overlooked("a".into())));
    assert_eq!(place(&effects, Place::Here), 1);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Stop(_) | Effect::Read(..))), "{effects:?}");
}

#[test]
fn of_a_stream_first_seen_late_nothing_is_numbered_before_the_hold_is_over() {
    let mut bench = Bench::new(None);
    bench.info.created = UnixMillis(0);
    bench.machine = Shards::new(rules(None), bench.info.clone());
    (bench.registry, bench.listing) = (None, vec![listed("a", None)]);
    let record = Request::Record(Behind::Stream, Loss::Unfollowed("l".into()));
    assert_eq!(bench.look()[0], Effect::Ask(record));
    bench.look();
    assert_eq!(bench.open.len(), 1, "it is recorded once");
    bench.done(Answer::Done);
    bench.look();
    assert_eq!(bench.open, []);
    bench.step_at(SECOND * 8, Input::Woke(Wait::Hold(Behind::Stream)));
    assert!(matches!(bench.open[..], [Request::Number { .. }]));
}

#[test]
fn the_record_of_an_earlier_streams_loss_begins_no_hold_behind_that_of_the_next_stream() {
    let mut bench = Bench::new(None);
    bench.info.created = UnixMillis(0);
    bench.machine = Shards::new(rules(None), bench.info.clone());
    bench.registry = None;
    bench.look();
    bench.info.label = "new".into();
    bench.look();
    assert_eq!(bench.open.len(), 2, "each stream has a loss of its own");
    bench.waits.clear();
    bench.done(Answer::Done);
    assert_eq!(bench.waits, [], "the answer is about the stream before");
    bench.done(Answer::Done);
    assert!(matches!(bench.waits[..], [(Wait::Hold(Behind::Stream), _)]));
}

#[test]
fn a_reader_that_met_a_loss_goes_on_once_the_hold_is_over_and_no_wait_ends_it_early() {
    let mut bench = Bench::new(None);
    let waiter = Waiter(7);
    let behind = Behind::Waiter(waiter);
    let hold = || Input::Woke(Wait::Hold(behind.clone()));
    bench.step(Input::Lost(waiter, Loss::Trimmed("a".into())));
    assert_eq!(bench.step_at(SECOND * 99, hold()), [], "it is not recorded");
    bench.done(Answer::Done);
    assert_eq!(bench.step_at(SECOND * 8 - Duration::from_millis(1), hold()), []);
    assert_eq!(bench.waits.last().unwrap().1, Duration::from_millis(1), "what is left is waited for");
    assert_eq!(bench.step_at(SECOND * 8, hold()), [Effect::GoOn(waiter)]);
    assert_eq!(bench.step_at(SECOND * 8, hold()), [], "once");
}

/// A worker that reads one shard, which has ended and is applied.
fn ended(listing: Vec<Listed>) -> (Bench, Vec<Effect>) {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("p", None)];
    bench.states = vec![state("p", None, 1, false)];
    bench.look();
    bench.step(Input::Woke(Wait::Spacing));
    bench.listing = listing;
    let effects = bench.step(Input::Applied { shard: "p".into(), at: NOW.wall });
    bench.step(Input::Ended("p".into()));
    (bench, effects)
}

const CLOSE: fn() -> Request = || Request::Close { shard: "p".into(), at: NOW.wall };

#[test]
fn a_shard_that_ended_is_closed_once_its_children_have_numbers() {
    let (mut bench, effects) = ended(vec![listed("p", None), listed("c", Some("p"))]);
    assert!(matches!(effects[..], [Effect::Ask(Request::Number { .. })]), "{effects:?}");
    bench.states.push(state("c", Some("p"), 2, false));
    assert_eq!(bench.done(Answer::Done), [Effect::Ask(CLOSE())]);
    bench.states[0].checkpoint.closed = true;
    assert_eq!(bench.done(Answer::Done)[0], Effect::Read(bench.states[1].checkpoint.clone(), Fed::default()));
}

#[test]
fn a_shard_that_ended_and_has_no_children_is_closed_after_they_were_looked_for() {
    let (mut bench, _) = ended(vec![listed("p", None)]);
    assert_eq!(bench.open, []);
    assert!(bench.waits.contains(&(Wait::Children, SECOND)));
    assert!(bench.waits.contains(&(Wait::NoChildren("p".into()), SECOND * 10)));
    bench.step(Input::Woke(Wait::NoChildren("p".into())));
    assert_eq!(bench.open, [], "only a look can show that there are none");
    bench.step(Input::Woke(Wait::Spacing));
    let effects = bench.step(Input::Woke(Wait::Children));
    assert_eq!(effects, [Effect::Tell(Event::Childless("p".into())), Effect::Ask(CLOSE())]);
}

#[test]
fn shards_that_end_at_once_find_their_children_in_one_listing() {
    let mut bench = Bench::new(None);
    let names: Vec<String> = (0..100).map(|n| format!("p{n}")).collect();
    bench.listing = names.iter().map(|name| listed(name, None)).collect();
    bench.states = names.iter().zip(1..).map(|(name, ordinal)| state(name, None, ordinal, false)).collect();
    bench.look();
    let mut asked = Vec::new();
    for name in names {
        let mut effects = Vec::new();
        let applied = Input::Applied { shard: name.as_str().into(), at: NOW.wall };
        bench.machine.step(NOW, applied, &mut effects);
        asked.extend(effects.into_iter().filter(|effect| matches!(effect, Effect::Ask(_))));
    }
    assert_eq!(asked, [Effect::Ask(Request::Registry)], "the service was asked a moment ago");
    bench.machine.asked = None;
    let mut effects = Vec::new();
    bench.machine.step(NOW, Input::Woke(Wait::Spacing), &mut effects);
    assert!(effects.contains(&Effect::Ask(Request::List)), "{effects:?}");
}

#[test]
fn the_children_of_one_shard_are_asked_for_alone() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("p", None), listed("q", None)];
    bench.states = vec![state("p", None, 1, false), state("q", None, 2, false)];
    bench.look();
    bench.step(Input::Woke(Wait::Spacing));
    let mut effects = Vec::new();
    bench.machine.step(NOW, Input::Applied { shard: "p".into(), at: NOW.wall }, &mut effects);
    assert!(effects.contains(&Effect::Ask(Request::Children("p".into()))), "{effects:?}");
}

#[test]
fn a_shard_that_no_worker_reads_for_too_long_is_reported() {
    let mut bench = Bench::new(Some("me"));
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    let effects = bench.done(Answer::Failed(Fault::Transient("slow".into())));
    assert_eq!((health(&effects).trouble.clone(), place(&effects, Place::Orphaned)), (None, 1));
    bench.step(Input::Woke(Wait::Unread("a".into())));
    bench.look();
    let effects = bench.done(Answer::Leased(LeaseTaken::Lost));
    assert_eq!(health(&effects).trouble, Some(Trouble::Unread(vec!["a".into()])));
    bench.look();
    let lease = Lease { holder: Worker("me".into()), beat: 1 };
    let effects = bench.done(Answer::Leased(LeaseTaken::Taken(lease)));
    assert_eq!((health(&effects).trouble.clone(), place(&effects, Place::Here)), (None, 1));
}

#[test]
fn a_shard_whose_reader_finds_it_gone_has_no_reader() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    bench.step(Input::Gone("a".into()));
    bench.step(Input::Ended("a".into()));
    let effects = bench.look();
    assert_eq!(effects[0], Effect::Read(bench.states[0].checkpoint.clone(), Fed::default()), "it is tried again");
    assert_eq!(place(&effects, Place::Orphaned), 1);
    assert_eq!(place(&bench.look(), Place::Here), 1, "this reader has found it");
}

#[test]
fn without_an_open_shard_or_without_a_stream_that_is_said() {
    let mut bench = Bench::new(None);
    bench.registry = Some(Registry { next: Ordinal(2), floor: Some(Ordinal(1)) });
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, true)];
    let effects = bench.look();
    assert_eq!(health(&effects).trouble, Some(Trouble::NoOpenShard));
    bench.step(Input::Woke(Wait::Spacing));
    bench.step(Input::Woke(Wait::Listing));
    let mut effects = Vec::new();
    bench.machine.step(NOW, Input::Woke(Wait::Look), &mut effects);
    let failed = Input::Answered(Request::List, Answer::Failed(Fault::Fatal("no stream".into())));
    let effects = bench.step(failed);
    assert_eq!(health(&effects).trouble, Some(Trouble::Refused("no stream".into())));
}

#[test]
fn a_stream_switched_off_before_its_first_listing_is_looked_for_again() {
    let mut bench = Bench::new(None);
    let mut effects = Vec::new();
    bench.machine.step(NOW, Input::Woke(Wait::Look), &mut effects);
    let fault = Fault::Fatal("no stream".into());
    let effects = bench.step(Input::Answered(Request::List, Answer::Failed(fault.clone())));
    assert_eq!(health(&effects).trouble, Some(Trouble::Unknown(fault)));
    bench.states = vec![state("a", None, 1, false)];
    bench.listing = vec![listed("a", None)];
    assert!(bench.look().contains(&Effect::Read(bench.states[0].checkpoint.clone(), Fed::default())));
}

#[test]
fn a_table_that_has_another_stream_is_followed_there_and_the_old_shards_are_left() {
    let mut bench = Bench::new(None);
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    bench.info.label = "new".into();
    (bench.listing, bench.states) = (vec![listed("b", None)], vec![state("b", None, 2001, false)]);
    let effects = bench.look();
    assert_eq!(effects[0], Effect::Tell(Event::NewStream("new".into())));
    assert!(effects.contains(&Effect::Stop("a".into())), "{effects:?}");
    assert!(effects.contains(&Effect::Read(bench.states[0].checkpoint.clone(), Fed::default())), "{effects:?}");
    assert_eq!(bench.machine.label().as_str(), "new");
}

#[test]
fn a_worker_that_leaves_takes_on_nothing_records_what_is_lost_and_gives_its_leases_back() {
    let mut bench = Bench::new(Some("me"));
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    bench.done(Answer::Leased(LeaseTaken::Taken(Lease { holder: Worker("me".into()), beat: 1 })));
    bench.step(Input::Leave);
    assert_eq!(bench.step(Input::Woke(Wait::Look)), []);
    assert_eq!(
        bench.step(Input::Applied { shard: "a".into(), at: NOW.wall }),
        [],
        "the next worker finds the end again"
    );
    let effects = bench.step(Input::Lost(Waiter(1), Loss::Trimmed("a".into())));
    assert!(matches!(effects[..], [Effect::Ask(Request::Record(..))]));
    assert_eq!(bench.step(Input::Release), [Effect::Ask(Request::Release("a".into()))]);
    assert_eq!(bench.step(Input::Release), []);
}

#[test]
fn a_lease_that_is_being_taken_while_the_worker_leaves_is_given_back() {
    let mut bench = Bench::new(Some("me"));
    bench.listing = vec![listed("a", None)];
    bench.states = vec![state("a", None, 1, false)];
    bench.look();
    bench.step(Input::Leave);
    bench.done(Answer::Leased(LeaseTaken::Taken(Lease { holder: Worker("me".into()), beat: 1 })));
    assert_eq!(bench.step(Input::Release), [Effect::Ask(Request::Release("a".into()))]);
}
