//! Properties of how another Region's counts are read and stored: the newest of each counter is kept, in any order,
//! however often they come and however they are gathered before they are written.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, proptest};
use tally_core::cached::Value;
use tally_core::changes::{DeploymentId, Place};
use tally_core::ids::{CounterId, PostId, Region};
use tally_core::regions::{Remote, RemotePosition, Told, ToldMessage};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

use super::cases;

/// Returns an entry as its one writer makes it: the version decides everything else.
fn entry() -> impl Strategy<Value = Value> {
    (0_u64..8).prop_map(|version| Value {
        likes: i64::try_from(version * 7 % 5).expect("small"),
        version: Place::from_stored(version),
        gap: (version > 4).then(|| Place::from_stored(version / 2)),
        doubtful: version == 3,
    })
}

fn counter(nth: usize) -> CounterId {
    CounterId::likes(PostId::new(["p", "q", "r"][nth]).expect("an id"))
}

fn region() -> Region {
    Region::new("eu").expect("a name")
}

/// Returns what is stored after these messages were read in order, and flushed behind those that are marked.
fn stored(messages: &[(usize, Value, bool)]) -> BTreeMap<CounterId, Value> {
    let mut remote = Remote::new(region(), RemotePosition::start(TopicId("t".into()), Offset(0)));
    let mut stored = BTreeMap::new();
    let mut put = |remote: &mut Remote| {
        for (id, value) in remote.flush().entries {
            stored.entry(id).and_modify(|held: &mut Value| *held = held.later(value)).or_insert(value);
        }
    };
    for (at, (nth, value, flushes)) in (0..).zip(messages) {
        let told = Told::Counted(counter(*nth), *value);
        let message = ToldMessage {
            deployment: DeploymentId("d".into()),
            region: region(),
            topic: TopicId("t".into()),
            partition: 0,
            said: UnixMillis(1),
            told,
        };
        remote.take(Offset(at), UnixMillis(1), message).expect("a message of the Region");
        if *flushes {
            put(&mut remote);
        }
    }
    put(&mut remote);
    stored
}

fn messages() -> impl Strategy<Value = Vec<(usize, Value, bool)>> {
    proptest::collection::vec((0..3_usize, entry(), any::<bool>()), 0..12)
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn the_merge_of_entries_knows_no_order_and_no_repetition([a, b, c] in [entry(), entry(), entry()]) {
        prop_assert_eq!(a.later(b), b.later(a));
        prop_assert_eq!(a.later(b).later(c), a.later(b.later(c)));
        prop_assert_eq!(a.later(a), a);
        prop_assert_eq!(a.later(b).version, a.version.max(b.version));
    }

    #[test]
    fn entries_come_to_the_newest_of_each_counter_in_any_order_and_however_they_are_gathered(
        (ordered, shuffled) in messages().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        repeated in messages(),
    ) {
        let twice: Vec<_> = shuffled.iter().chain(&ordered).chain(&repeated).chain(&repeated).copied().collect();
        let once: Vec<_> = ordered.iter().chain(&repeated).copied().collect();
        let mut newest = BTreeMap::new();
        for (nth, value, _) in &once {
            let id = counter(*nth).in_region(&region());
            let held = newest.entry(id).or_insert(*value);
            if held.version < value.version {
                *held = *value;
            }
        }
        prop_assert_eq!(stored(&twice), newest.clone());
        prop_assert_eq!(stored(&once), newest);
    }
}
