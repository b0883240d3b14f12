//! Tests the states of the partitions of `tally-trends`, and a reader of the lists that they publish, under any order
//! of events: every list that is called exact is what rows gained in its window.

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::ids::PostId;
use tally_trends::{Claim, Published, Ranked, Reason, Shelf, Tick, Writer, Written, mark};

use super::world::{BEGAN, PARTITIONS, World, likes, window};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Change { subject: u8, before: Option<u8>, after: Option<u8> },
    Pass(u64),
    Feed { lost: bool },
    Again(usize),
    Store(usize),
    Trim(usize, u64),
    Answer(usize),
    Deliver(usize, usize),
    Acknowledge(usize),
    Break(usize),
    Replace(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let region = || proptest::option::of(0..3u8);
    let change =
        (0..10u8, region(), region()).prop_map(|(subject, before, after)| Operation::Change { subject, before, after });
    let which = || 0..PARTITIONS;
    let operation = prop_oneof![
        12 => change,
        6 => (1..9u64).prop_map(Operation::Pass),
        1 => (60..700u64).prop_map(Operation::Pass),
        8 => Just(Operation::Feed { lost: false }),
        1 => Just(Operation::Feed { lost: true }),
        1 => any::<usize>().prop_map(Operation::Again),
        2 => which().prop_map(Operation::Store),
        1 => (which(), 0..900u64).prop_map(|(index, keeps)| Operation::Trim(index, keeps)),
        10 => which().prop_map(Operation::Answer),
        10 => (which(), 1..9usize).prop_map(|(index, most)| Operation::Deliver(index, most)),
        10 => which().prop_map(Operation::Acknowledge),
        1 => which().prop_map(Operation::Break),
        1 => which().prop_map(Operation::Replace),
    ];
    vec(operation, 1..250)
}

fn run(operations: Vec<Operation>, finds: bool) -> World {
    let mut world = World::settled();
    world.finds = finds;
    for operation in operations {
        match operation {
            Operation::Change { subject, before, after } => world.happen(subject, before, after),
            Operation::Pass(span) => world.now += span,
            Operation::Feed { lost } => world.feed(lost),
            Operation::Again(nth) => world.again(nth),
            Operation::Store(index) => world.store(index),
            Operation::Trim(index, keeps) => world.trim(index, keeps),
            Operation::Answer(index) => world.answer(index),
            Operation::Deliver(index, most) => world.deliver(index, most),
            Operation::Acknowledge(index) => world.acknowledge(index),
            Operation::Break(index) => world.fail(index),
            Operation::Replace(index) => world.replace(index),
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    /// Checks that whatever happens, lists are right, readers agree, and lists are exact again once losses have left all
    /// windows.
    #[test]
    fn every_list_that_is_called_exact_is_what_rows_gained_whatever_arrives_when(
        operations in operations(),
        finds in any::<bool>(),
    ) {
        let mut world = run(operations, finds);
        world.settle(20);
        // A partition that lags by minutes catches up first; until then, a new reader may be a moment behind.
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
}

/// The claims about the last moment of partition 0.
fn claims(world: &World) -> [Claim; 2] {
    let (_, claims) = world.readers[0].claims.last().unwrap();
    [claims[0].1, claims[1].1]
}

/// Checks that no list is exact now, for this reason, and that each is again once a window has passed.
fn leaves_one_window_after_the_other(world: &mut World, reason: Reason) {
    assert_eq!(claims(world), [Claim::Unknown(reason); 2]);
    world.settle(130);
    assert_eq!(claims(world), [Claim::Exact, Claim::Unknown(reason)]);
    world.settle(600);
    assert_eq!(claims(world), [Claim::Exact; 2]);
}

#[test]
fn nothing_is_published_before_the_end_that_the_log_had_at_the_start() {
    let mut world = World::settled();
    world.store(0);
    world.replace(0);
    world.answer(0);
    let end = world.partitions[0].log.len() as u64;
    while world.readers[0].machine.position().0 < end {
        assert_eq!(world.readers[0].machine.published(), 0);
        world.deliver(0, 1);
    }
    assert!(world.readers[0].publishing.is_some());
}

#[test]
fn after_a_fault_reading_resumes_at_its_position_if_that_is_still_in_the_log() {
    let mut world = World::liked();
    world.fail(0);
    world.settle(5);
    assert_eq!((world.readers[0].opened, world.readers[0].anew, claims(&world)), (2, 0, [Claim::Exact; 2]));
    // The log has lost its end, with a section that was acknowledged.
    world.partitions[0].log.truncate(1);
    world.settle(5);
    assert_eq!((world.readers[0].anew, claims(&world)), (1, [Claim::Unknown(Reason::Loss); 2]));
}

#[test]
fn without_search_by_time_the_whole_log_is_read() {
    let mut world = World::liked();
    world.finds = false;
    world.store(0);
    world.replace(0);
    world.settle(20);
    let top = world.shelf.top(&likes(None), window("10m"), 3).unwrap();
    assert_eq!((top.claim, top.list.items.len()), (Claim::Exact, 1));
}

#[test]
fn the_gravest_of_several_reasons_is_reported_whichever_partition_has_it() {
    let (young, loss) = (Claim::Unknown(Reason::Young), Claim::Unknown(Reason::Loss));
    assert_eq!([young.max(loss), loss.max(young), Claim::Exact.max(young)], [loss, loss, young]);
    assert_eq!([Claim::Exact.max(Claim::Bound(3)), Claim::Bound(4).max(Claim::Bound(3))], [3, 4].map(Claim::Bound));
    assert_eq!(Claim::Bound(4).max(young), young);
    let reasons = [Reason::Blocked, Reason::Shed, Reason::Clock, Reason::Missing, Reason::Young, Reason::Loss];
    assert!(reasons.is_sorted());
}

#[test]
fn a_late_change_is_counted_and_lists_are_inexact_for_a_window() {
    let mut world = World::settled();
    assert_eq!(claims(&world), [Claim::Exact; 2]);
    world.happen_at(0, None, Some(0), world.now - 9);
    // No list that is called exact contains it: earlier ones were made without it, and it has left the later ones.
    world.changes[0].second = 0;
    world.settle(2);
    let top = world.shelf.top(&likes(None), window("10m"), 3).unwrap();
    assert_eq!(top.list.items[0].count(), 1, "it is counted");
    leaves_one_window_after_the_other(&mut world, Reason::Clock);
}

#[test]
fn a_loss_makes_lists_inexact_until_it_leaves_the_window_also_for_a_process_that_starts_later() {
    let mut world = World::settled();
    world.lose(None);
    world.settle(3);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Loss); 2]);
    world.settle(130);
    world.store(0);
    world.replace(0);
    world.settle(20);
    assert_eq!(claims(&world), [Claim::Exact, Claim::Unknown(Reason::Loss)]);
    world.settle(600);
    assert_eq!(claims(&world), [Claim::Exact; 2], "it is open still, and before every window");
}

#[test]
fn an_unreadable_weight_makes_lists_inexact_while_it_is_in_the_window() {
    let mut world = World::settled();
    world.unreadable();
    world.settle(3);
    leaves_one_window_after_the_other(&mut world, Reason::Loss);
}

#[test]
fn lists_of_a_stream_as_old_as_its_table_are_exact_from_the_start() {
    let mut world = World::new();
    world.happen(0, None, Some(0));
    while world.readers[0].claims.is_empty() {
        world.settle(1);
    }
    assert_eq!(claims(&world), [Claim::Exact; 2]);
    let mut world = World::without_log();
    world.lose(None);
    world.announce(None);
    world.settle(20);
    assert_eq!(claims(&world), [Claim::Unknown(Reason::Loss); 2], "the stream is younger");
}

#[test]
fn lists_are_young_until_their_windows_lie_in_the_part_of_the_log_that_was_read() {
    let mut world = World::new();
    world.lose(None);
    world.settle(20);
    world.trim(0, 5);
    world.replace(0);
    world.settle(20);
    // The loss was announced before the part that was read.
    leaves_one_window_after_the_other(&mut world, Reason::Young);
}

#[test]
fn lists_are_exact_at_once_if_the_log_reaches_back_beyond_their_windows() {
    let mut world = World::liked();
    world.now += 1_000;
    world.feed(false);
    world.now += 8_000;
    world.settle(20);
    world.happen(0, Some(0), None);
    world.settle(20);
    world.trim(0, 9_000);
    world.replace(0);
    world.settle(3);
    assert!(world.partitions[0].start > 0);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
}

#[test]
fn a_log_that_lost_its_end_before_the_stored_position_counts_as_a_loss() {
    for (lost, kept) in [(true, 15), (false, 15), (true, 0)] {
        let mut world = World::liked();
        world.trim(0, kept);
        if lost {
            world.now += 1;
            world.lose_end(0, 3);
        }
        world.replace(0);
        world.settle(3);
        let reason = if lost { Reason::Loss } else { Reason::Young };
        assert_eq!(claims(&world), [Claim::Unknown(reason); 2], "{lost} {kept}");
    }
}

#[test]
fn without_the_beginning_and_a_stored_position_a_process_waits_until_one_is_stored() {
    let mut world = World::settled();
    world.partitions[0].start = 3;
    world.replace(0);
    world.settle(20);
    assert_eq!((world.readers[0].opened, world.readers[0].machine.published()), (0, 0));
    world.store(0);
    world.settle(5);
    assert!(world.readers[0].machine.published() > 0);
}

#[test]
fn a_recreated_topic_is_a_loss_and_the_stored_position_of_the_old_one_is_not_used() {
    let mut world = World::liked();
    (0..PARTITIONS).for_each(|index| world.store(index));
    world.recreate();
    world.settle(30);
    assert_eq!((world.readers[0].anew, claims(&world)), (1, [Claim::Unknown(Reason::Loss); 2]));
    world.settle(700);
    assert_eq!(claims(&world), [Claim::Exact; 2]);
}

#[test]
fn an_unknown_format_stops_the_partition_and_the_others_go_on_without_it() {
    let mut world = World::settled();
    let now = world.now;
    world.partitions[0].log.push((now, br#"{"v":3,"what":"ever"}"#.to_vec()));
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
fn regions_beyond_the_limit_are_merged_and_no_list_of_a_region_is_exact_then() {
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
fn a_board_repeated_after_its_tick_changes_nothing() {
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
    // After so many moments the first one is dropped, and all that is known of the board is that it is absent.
    (140..155).for_each(|moment| shelf.take(tick(moment, 0)));
    shelf.take(first);
    shelf.settle();
    let top = shelf.top(&place, over, 3).unwrap();
    assert_eq!((top.list.moment, top.list.items, top.claim), (154, vec![], Claim::Exact));
    shelf.take(tick(155, 0));
    assert!(shelf.settle(), "the next tick does not wait for the repeated board");
    shelf.take(tick(156, 1));
    assert!(!shelf.settle(), "a tick without its boards is refused");
}
