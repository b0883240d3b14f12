//! The machines of partitions and a reader of what they write, under any order of what arrives.

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::ids::PostId;
use tally_core::ledger::Seconds;
use tally_trends::partition::Input;
use tally_trends::{Claim, Published, Ranked, Reason, Shelf, Tick, Writer, Written, mark};

use super::world::{BEGAN, PARTITIONS, World, likes, message, window};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Change { subject: u8, before: Option<u8>, after: Option<u8> },
    Pass(u64),
    Feed { lost: bool },
    Again(usize),
    Learn(usize),
    Answer(usize),
    Deliver(usize, usize),
    Acknowledge(usize),
    Break(usize),
    Replace(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let region = || proptest::option::of(0..3u8);
    let change =
        (0..10u8, region(), region()).prop_map(|(subject, before, after)| Deed::Change { subject, before, after });
    let which = || 0..PARTITIONS;
    let deed = prop_oneof![
        12 => change,
        6 => (1..9u64).prop_map(Deed::Pass),
        1 => (60..700u64).prop_map(Deed::Pass),
        8 => Just(Deed::Feed { lost: false }),
        1 => Just(Deed::Feed { lost: true }),
        1 => any::<usize>().prop_map(Deed::Again),
        12 => which().prop_map(Deed::Learn),
        10 => which().prop_map(Deed::Answer),
        10 => (which(), 1..9usize).prop_map(|(index, most)| Deed::Deliver(index, most)),
        10 => which().prop_map(Deed::Acknowledge),
        1 => which().prop_map(Deed::Break),
        1 => which().prop_map(Deed::Replace),
    ];
    vec(deed, 1..250)
}

fn run(deeds: Vec<Deed>) -> World {
    let mut world = World::new();
    world.settle(20);
    for deed in deeds {
        match deed {
            Deed::Change { subject, before, after } => world.happen(subject, before, after),
            Deed::Pass(span) => world.now += span,
            Deed::Feed { lost } => world.feed(lost),
            Deed::Again(nth) => world.again(nth),
            Deed::Learn(index) => world.learn(index),
            Deed::Answer(index) => world.answer(index),
            Deed::Deliver(index, most) => world.deliver(index, most),
            Deed::Acknowledge(index) => world.acknowledge(index),
            Deed::Break(index) => world.input(index, Input::Broken),
            Deed::Replace(index) => world.replace(index),
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_list_that_is_called_exact_is_what_rows_gained_whatever_arrives_when(deeds in deeds()) {
        what_comes_late_is_made_up_for(deeds);
    }
}

/// Whatever the deeds were, lists are right, readers agree, and lists are exact again once what was lost has left every window.
fn what_comes_late_is_made_up_for(deeds: Vec<Deed>) {
    let mut world = run(deeds);
    world.settle(20);
    // A partition that is minutes behind catches up first: until then one that begins may be a moment behind.
    world.settle_until_level();
    let (mut fresh, read) = (world.fresh_shelf(), world.topic.len());
    world.right(&fresh);
    world.settle(3);
    world.go_on(&mut fresh, read);
    world.right(&fresh);
    assert_eq!(fresh.moment(), world.shelf.moment(), "a reader that begins has what one that stayed has");
    world.now += 800;
    world.settle(20);
    let (place, over) = (likes(None), window("10m"));
    let top = world.shelf.top(&place, over, 3).unwrap();
    assert_eq!(top.claim, Claim::Exact);
    assert!(top.list.moment > BEGAN + 800 && world.exact > 0);
}

#[test]
fn a_reader_that_begins_while_a_partition_is_minutes_behind_agrees_once_it_has_caught_up() {
    let passed = |spans: &[u64]| spans.iter().copied().map(Deed::Pass).collect::<Vec<_>>();
    let fed = [Deed::Feed { lost: false }, Deed::Replace(0)];
    let before = passed(&[228, 300, 619, 235, 681, 282, 610]);
    what_comes_late_is_made_up_for([&before[..], &fed, &passed(&[337, 345, 310, 543])].concat());
}

/// What is claimed of the last moment of partition 0.
fn claims(world: &World) -> [Claim; 2] {
    let (_, claims) = world.readers[0].claims.last().unwrap();
    [claims[0].1, claims[1].1]
}

#[test]
fn a_moment_waits_for_an_end_of_the_log_that_was_asked_for_after_as_of() {
    let mut world = World::new();
    world.settle(20);
    let published = world.readers[0].machine.published();
    world.now += 5;
    world.learn(0);
    // The end is asked for here, before these are written.
    world.happen(0, None, Some(0));
    world.now += 5;
    world.feed(false);
    // Now it is known that they are, and the end of before comes.
    world.learn(0);
    world.answer(0);
    assert!(world.readers[0].publishing.is_none() && world.readers[0].machine.published() == published);
    world.answer(0);
    world.deliver(0, 9);
    assert!(world.readers[0].publishing.is_some());
}

#[test]
fn an_end_that_is_behind_what_was_read_since_it_was_asked_for_is_no_break() {
    let mut world = World::new();
    world.settle(20);
    world.now += 5;
    world.feed(false);
    world.learn(0);
    // The end is asked for here; what is written and read before the answer comes is behind it.
    world.happen(0, None, Some(0));
    world.now += 5;
    world.feed(false);
    world.deliver(0, 9);
    world.answer(0);
    assert!(world.readers[0].machine.reads());
    world.settle(10);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
    // An end of before what was read when it was asked for is one.
    world.partitions[0].log.clear();
    world.settle(2);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Loss); 2]);
}

#[test]
fn a_broker_that_cannot_look_by_time_has_all_read_that_there_is() {
    let mut world = World::new();
    world.happen(0, None, Some(0));
    world.settle(20);
    world.finds = false;
    world.replace(0);
    world.settle(20);
    let top = world.shelf.top(&likes(None), window("10m"), 3).unwrap();
    assert_eq!((top.claim, top.list.items.len()), (Claim::Exact, 1));
}

#[test]
fn of_several_reasons_the_gravest_is_told_whichever_partition_has_it() {
    let (young, loss) = (Claim::Unknown(Reason::Young), Claim::Unknown(Reason::Loss));
    assert_eq!([young.and(loss), loss.and(young), Claim::Exact.and(young)], [loss, loss, young]);
    assert_eq!([Claim::Exact.and(Claim::Bound(3)), Claim::Bound(4).and(Claim::Bound(3))], [3, 4].map(Claim::Bound));
}

#[test]
fn a_late_change_is_counted_and_takes_exactness_for_a_window() {
    let mut world = World::new();
    world.settle(20);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
    let late = world.change(0, None, Some(0), world.now - 9);
    let written = (world.now, message(&late));
    // It is in no list that is called exact: those before were made without it, and it has left those behind.
    world.partitions[0].log.push(written);
    world.settle(2);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Clock); 2]);
    world.settle(130);
    assert_eq!(claims(&world), [Claim::Exact, Claim::Unknown(Reason::Clock)]);
    world.settle(600);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
}

#[test]
fn a_change_that_is_late_for_the_very_first_moment_is_late() {
    let mut world = World::new();
    while world.readers[0].publishing.is_none() {
        world.now += 1;
        world.feed(false);
        world.learn(0);
        world.answer(0);
    }
    let late = world.change(0, None, Some(0), world.readers[0].machine.published());
    let written = (world.now, message(&late));
    world.partitions[0].log.push(written);
    world.deliver(0, 9);
    world.acknowledge(0);
    world.settle(3);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Clock); 2]);
}

#[test]
fn a_lapse_takes_exactness_until_it_has_left_the_window_also_from_one_who_comes_later() {
    let mut world = World::new();
    world.settle(20);
    world.lapses.push(Seconds { first: world.now - 5, last: world.now - 4 });
    world.settle(1);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Loss); 2]);
    world.settle(130);
    world.replace(0);
    world.settle(20);
    assert_eq!(claims(&world), [Claim::Exact, Claim::Unknown(Reason::Loss)]);
    world.settle(600);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
}

#[test]
fn a_log_that_was_cut_or_made_anew_lacks_what_it_had() {
    let mut world = World::new();
    world.happen(0, None, Some(0));
    world.settle(20);
    world.happen(0, Some(0), None);
    world.settle(20);
    world.partitions[0].start = 1;
    world.replace(0);
    world.settle(20);
    assert_eq!(
        claims(&world)[1],
        Claim::Unknown(Reason::Loss),
        "the first one there is may follow on one that was needed"
    );
    let mut world = World::new();
    world.settle(20);
    world.partitions[0].topic = 1;
    world.settle(20);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Loss); 2]);
    world.settle(700);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
}

#[test]
fn a_form_that_is_not_known_stops_the_partition_and_the_others_go_on_without_it() {
    let mut world = World::new();
    world.settle(20);
    let now = world.now;
    world.partitions[0].log.push((now, br#"{"v":2,"what":"ever"}"#.to_vec()));
    world.settle(2);
    assert!(world.readers[0].halted && !world.readers[0].machine.reads());
    let (published, told) = (world.readers[0].machine.published(), world.shelf.moment().unwrap());
    world.settle(30);
    assert_eq!(
        (world.readers[0].machine.published(), world.shelf.moment()),
        (published, Some(told)),
        "it is waited for"
    );
    world.settle(60);
    assert!(world.shelf.moment().unwrap() > told + 60);
    let top = world.shelf.top(&likes(None), window("1m"), 3).unwrap();
    assert_eq!(top.claim, Claim::Unknown(Reason::Missing));
}

#[test]
fn what_a_zombie_writes_is_neither_taken_back_to_nor_mixed_with_what_another_writes() {
    let mut world = World::new();
    world.happen(0, None, Some(0));
    world.settle(20);
    // The zombie is about to write it when another one takes the partition over.
    world.happen(2, None, Some(0));
    while world.readers[0].publishing.as_ref().is_none_or(|publication| publication.boards.is_empty()) {
        world.acknowledge(0);
        world.now += 1;
        world.feed(false);
        world.learn(0);
        world.answer(0);
        world.deliver(0, 9);
    }
    let asleep = world.readers[0].publishing.take().unwrap();
    world.replace(0);
    world.happen(0, Some(0), None);
    world.settle(90);
    // The other partition is ahead by a little.
    world.now += 2;
    world.feed(false);
    for _ in 0..3 {
        world.learn(1);
        world.answer(1);
        world.acknowledge(1);
    }
    let told = world.shelf.moment();
    world.readers[0].publishing = Some(asleep);
    world.acknowledge(0);
    assert_eq!(world.shelf.moment(), told, "nor is the partition taken for silent");
    world.settle(5);
    assert!(world.shelf.moment() > told);
    // Its board stands in the topic in place of another's: a reader that begins waits until all are written again.
    let fresh = world.fresh_shelf();
    world.right(&fresh);
    world.settle(310);
    assert_eq!(world.fresh_shelf().moment(), world.shelf.moment());
}

#[test]
fn too_many_regions_are_one_and_no_list_of_a_region_is_called_exact_then() {
    let mut world = World::new();
    for region in 1..=3 {
        world.happen(0, None, Some(region));
    }
    world.settle(20);
    let claim = |region| world.shelf.top(&likes(region), window("10m"), 3).unwrap().claim;
    assert_eq!(claim(None), Claim::Exact);
    assert_eq!([claim(Some("r1")), claim(Some("other"))], [Claim::Unknown(Reason::Shed); 2]);
    let other = world.shelf.top(&likes(Some("other")), window("10m"), 3).unwrap();
    assert_eq!(other.list.items[0].count(), 1);
}

#[test]
fn a_board_that_comes_once_more_behind_its_tick_changes_nothing() {
    let (writer, place, over) = (Writer("w".into()), likes(None), window("1m"));
    let board = |moment, items: &[(&str, i64)]| {
        let ranked = |(id, count): &(&str, i64)| Ranked::new(PostId::new(id).unwrap(), *count);
        let items = items.iter().map(ranked).collect();
        let (writer, place) = (writer.clone(), place.clone());
        Published::Board(Written { writer, partition: 0, moment, place, window: over, items, complete: true })
    };
    let tick = |moment, marks| {
        let (writer, claims) = (writer.clone(), vec![(over, Claim::Exact)]);
        Published::Tick(Tick { writer, partition: 0, of: 1, moment, marks, folded: false, claims })
    };
    let mut shelf = Shelf::default();
    shelf.read_whole();
    let first = board(10, &[("p", 7)]);
    shelf.take(first.clone());
    shelf.take(tick(10, mark(&place, over, 10)));
    shelf.take(board(140, &[]));
    // So many that the first moment is not kept, and nothing is known of the board but that there is none.
    (140..155).for_each(|moment| shelf.take(tick(moment, 0)));
    shelf.take(first);
    shelf.settle();
    let top = shelf.top(&place, over, 3).unwrap();
    assert_eq!((top.list.moment, top.list.items, top.claim), (154, vec![], Claim::Exact));
    shelf.take(tick(155, 0));
    assert!(shelf.settle(), "nor is the next tick without its boards");
}
