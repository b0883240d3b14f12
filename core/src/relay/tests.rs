//! Tests of the relay's state machine: one process copies stream shards into two partitions of the log of changes, and
//! a reader of each partition checks what arrives.

use super::*;
use crate::changes::tests::{entry, of, opened, opening, shard};
use crate::changes::{Filter, Item, Lost, Place};
use crate::ids::RowKey;
use crate::topic::Offset;

const PARTITIONS: u32 = 2;

struct World {
    relay: Relay,
    now: Now,
    /// The messages under way, each with its partition.
    under_way: Vec<(u32, Arc<[u8]>)>,
    effects: Vec<Effect>,
    readers: Vec<(Filter, u64, Vec<u64>)>,
}

/// Returns a row key that belongs to a partition.
fn key(partition: u32) -> RowKey {
    let mut keys = (0..).map(|n| format!("p{n}#0").parse().unwrap());
    keys.find(|key| partition_of(key, PARTITIONS) == partition).unwrap()
}

impl World {
    fn new() -> Self {
        let now = Now { at: Duration::from_secs(100), wall: UnixMillis(1_700_000_000_000) };
        let relay = Relay::new(of(), PARTITIONS, Rules::default(), now);
        let readers = vec![(Filter::default(), 0, Vec::new()); PARTITIONS as usize];
        let mut world = Self { relay, now, under_way: Vec::new(), effects: Vec::new(), readers };
        let shards = vec![opening("a", None, 1), opening("b", None, 1)];
        world.hand(Input::Announce(Announcement(1), opened(shards, &[])));
        world.acknowledge_all();
        assert_eq!(world.effects, [Effect::Announced(Announcement(1))]);
        world.effects.clear();
        world
    }

    /// Returns a process that relays the stream shard `a`.
    fn begun() -> Self {
        let mut world = Self::new();
        world.begin("a");
        world
    }

    fn begin(&mut self, name: &str) {
        self.hand(Input::Begin(shard(name), Fed::default()));
        self.acknowledge_all();
    }

    fn hand(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.relay.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { partition, value, .. } => self.under_way.push((partition, value)),
                other => self.effects.push(other),
            }
        }
        let mut partitions: Vec<_> = self.under_way.iter().map(|(partition, _)| *partition).collect();
        partitions.sort_unstable();
        assert!(partitions.is_sorted_by(|one, next| one < next), "two messages are under way: {partitions:?}");
    }

    fn page(&mut self, name: &str, entries: &[(u64, u32)], to: u64) {
        let entry = |(sequence, partition): &(u64, u32)| Entry { key: key(*partition), ..entry(*sequence) };
        let entries = entries.iter().map(entry).collect();
        self.hand(Input::Page { shard: shard(name), entries, to: to.into(), read: self.now.wall });
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { at: self.now.at + time, wall: self.now.wall.plus(time) };
        self.hand(Input::Woke);
    }

    fn append(&mut self, partition: u32, value: &[u8]) {
        let (filter, offset, accepted) = &mut self.readers[partition as usize];
        let message = Message::read(value, &of()).expect("what the machine sends can be read");
        let taken = filter.take(Place::new(1, Offset(*offset)), self.now.wall, &message, |item, _| {
            if let Item::Entry(entry) = item {
                accepted.push(entry.sequence.wire().parse().expect("a small number"));
            }
        });
        assert_eq!(taken.hole, None, "partition {partition}, offset {offset}: {message:?}");
        *offset += 1;
    }

    fn acknowledge(&mut self) -> bool {
        if self.under_way.is_empty() {
            return false;
        }
        let (partition, value) = self.under_way.remove(0);
        self.append(partition, &value);
        self.hand(Input::Sent(partition, Ok(())));
        true
    }

    fn acknowledge_all(&mut self) {
        while self.acknowledge() {}
    }
}

fn fed(to: u64, at: u64) -> Fed {
    Fed { to: Some(to.into()), at: UnixMillis(at) }
}

#[test]
fn an_announcement_is_said_although_entries_never_stop() {
    let mut world = World::begun();
    world.page("a", &[(1, 0)], 1);
    let lost = Lost { number: LossNumber(world.now.wall.0), next: Some((shard("b"), 9.into())) };
    world.hand(Input::Announce(Announcement(7), Body::Lost(lost)));
    for n in 2..20 {
        world.page("a", &[(n, 0)], n);
        world.pass(Rules::default().linger);
        world.acknowledge();
    }
    world.acknowledge_all();
    assert_eq!(world.effects, [Effect::Announced(Announcement(7))]);
    assert_eq!(world.readers[0].0.standing().open.len(), 1);
}

#[test]
fn what_gathered_while_kafka_was_away_is_sent_in_messages_of_a_bounded_size_and_an_announcement_waits_for_its_turn() {
    let mut world = World::begun();
    world.begin("b");
    world.page("a", &[(1, 0)], 1);
    world.pass(Rules::default().linger);
    // The message is not answered, and much more is passed.
    let many: Vec<_> = (2..9000).map(|n| (n, 0)).collect();
    world.page("a", &many, 9000);
    world.page("b", &[(5, 0)], 5);
    for name in ["a", "b"] {
        world.hand(Input::UpTo(shard(name), UnixMillis(50)));
    }
    world.hand(Input::End(shard("a"), Vec::new()));
    world.page("b", &[(6, 0)], 6);
    let mut sizes = Vec::new();
    while let Some((partition, value)) = world.under_way.first().cloned() {
        if partition == 0 && !world.readers[0].2.contains(&8999) {
            assert!(world.readers[0].0.standing().as_of < Some(UnixMillis(50)), "not all of it is in the log");
        }
        sizes.push(value.len());
        world.acknowledge();
    }
    let most = Rules::default().bytes * 2;
    assert!(sizes.len() > 4 && sizes.iter().all(|size| *size < most), "{sizes:?}");
    world.readers[0].2.sort_unstable();
    assert_eq!(world.readers[0].2, Vec::from_iter([1, 2, 3, 4, 5, 5, 6, 6].into_iter().chain(7..9000)));
    assert_eq!(world.effects, [Effect::Closed(shard("a"), fed(9000, 50))]);
}

#[test]
fn open_losses_are_repeated_with_every_statement() {
    let mut world = World::begun();
    world.hand(Input::Losses(vec![LossNumber(5)]));
    world.pass(Rules::default().state);
    world.acknowledge_all();
    assert!(world.readers.iter().all(|(filter, _, _)| filter.standing().open == [LossNumber(5)].into()));
}

#[test]
fn a_stream_shard_is_left_once_all_of_it_is_stored() {
    let mut world = World::begun();
    world.page("a", &[(1, 0)], 1);
    assert!(world.under_way.is_empty(), "an entry waits for others");
    world.hand(Input::Leave(shard("a")));
    world.pass(Rules::default().state);
    world.acknowledge_all();
    assert_eq!(world.effects, [Effect::Store(shard("a"), Fed { to: Some(1.into()), at: UnixMillis(0) })]);
    world.hand(Input::Stored(shard("a"), Fed { to: Some(1.into()), at: UnixMillis(0) }));
    assert_eq!(world.effects.last(), Some(&Effect::Left(shard("a"))));
}

#[test]
fn a_stream_shard_that_was_not_begun_or_is_closed_is_left_at_once() {
    let mut world = World::new();
    world.hand(Input::Leave(shard("a")));
    assert_eq!(world.effects, [Effect::Left(shard("a"))]);
    world.hand(Input::Begin(shard("b"), Fed::default()));
    world.hand(Input::End(shard("b"), Vec::new()));
    world.acknowledge_all();
    assert_eq!(world.effects.last(), Some(&Effect::Closed(shard("b"), Fed::default())));
    world.hand(Input::Leave(shard("b")));
    assert_eq!(world.effects.last(), Some(&Effect::Left(shard("b"))));
}
