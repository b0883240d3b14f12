//! The maps of sets, and that nothing which counts or lists rows sees them.

use tally_core::batch::Change;
use tally_core::event::Action;
use tally_core::homes::{CounterMap, DecidedBy, Homes, Sought};
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, RowKey, ShardCount};
use tally_core::ports::{ChangeStream, MemberRow, Position, Segment};
use tally_core::tally::{RecordKind, read};
use tally_core::time::UnixMillis;

use crate::engine::{Env, shards};
use crate::likes::{commit, post, user, write};

pub(crate) async fn contract(env: &Env) {
    a_map_is_put_where_it_is_as_it_was_read(env).await;
    announcements_are_counted(env).await;
    a_map_is_no_row(env).await;
    maps_are_read_together(env).await;
    members_are_found_under_the_home_that_has_them(env).await;
}

fn map(homes: &[u64], newest: u64, asked: Option<u64>, decided_by: DecidedBy, at: u64) -> CounterMap {
    let count = |n: u64| ShardCount::new(n).unwrap();
    let homes: Homes = homes.iter().map(|home| count(*home)).collect();
    CounterMap::new(homes, count(newest), asked.map(count), decided_by, UnixMillis(at)).unwrap()
}

fn retweets(id: &str) -> CounterId {
    let name = CounterName::new("retweets", CounterKind::Set).unwrap();
    CounterId { post: PostId::new(id).unwrap(), name }
}

async fn a_map_is_put_where_it_is_as_it_was_read(env: &Env) {
    let (port, id) = (&env.maps, post("mapped#3"));
    assert_eq!(port.map(&id).await, Ok(None));
    let first = map(&[4], 4, Some(32), DecidedBy::FollowersCount, 100);
    let second = map(&[4, 64], 64, None, DecidedBy::Heat, 101);
    assert_eq!(port.put_map(&id, Some(&second), &first).await, Ok(false), "none stands");
    assert_eq!(port.put_map(&id, None, &first).await, Ok(true));
    assert_eq!(port.put_map(&id, None, &first).await, Ok(false), "a repetition finds it there");
    assert_eq!(port.map(&id).await, Ok(Some(first)));
    assert_eq!(port.put_map(&id, Some(&first), &second).await, Ok(true));
    assert_eq!(port.put_map(&id, Some(&first), &second).await, Ok(false));
    assert_eq!(port.map(&id).await, Ok(Some(second)));
    assert_eq!(port.map(&retweets("mapped#3")).await, Ok(None), "each counter has a map of its own");
}

async fn announcements_are_counted(env: &Env) {
    env.config.config(Some(shards())).await.unwrap();
    let before = env.maps.announced().await.unwrap();
    for nth in 1..=2 {
        env.maps.announce().await.unwrap();
        assert_eq!(env.maps.announced().await, Ok(before + nth));
    }
    assert_eq!(env.config.deployed().await, Ok(Some(shards())), "what else is configured stays");
}

/// Listings, erasing and recounts read rows by these calls, and the relay by the change stream.
async fn a_map_is_no_row(env: &Env) {
    for (id, topic) in [(post("unseen"), "unseen"), (retweets("unseen"), "unseen.retweets")] {
        let first = RowKey::first(&id);
        let member = (0..).map(|n| user(&format!("u-{n}"))).find(|user| RowKey::of(&id, user, shards()) == first);
        let member = member.expect("some user is in shard 0");
        write(env, topic, Action::Like, &[(id.clone(), member.clone())], 1).await;
        let stored = map(&[4], 4, Some(8), DecidedBy::NumberOfShards, 1);
        assert_eq!(env.maps.put_map(&id, None, &stored).await, Ok(true));
        let likes = env.rows.likes(&first, None, None).await.unwrap().items;
        assert!(likes.iter().map(|like| &like.user).eq([&member]));
        assert_eq!(env.rows.users(&first, None).await.unwrap().items, [MemberRow { user: member.clone(), gone: None }]);
        let weights = env.rows.weights(&first, None).await.unwrap().items;
        assert_eq!(weights, [((&member).into(), Some(tally_core::weight::Weight::ONE))]);
        let (pk, mut scanned, mut after) = (first.to_string(), Vec::new(), None);
        loop {
            let page = env.rows.scan(Segment { index: 0, of: 1 }, after.as_ref()).await.unwrap();
            scanned.extend(page.items.into_iter().filter(|row| row.pk == pk).map(|row| row.sort));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(scanned, [member.to_string()]);
        let Some(real) = env.real() else { continue };
        let counted = records(&*real.stream).await.into_iter().filter(|(row, _)| *row == pk).map(|(_, kind)| kind);
        let counted: Vec<bool> = counted.map(|kind| matches!(kind, RecordKind::Row { .. })).collect();
        assert_eq!(counted, [true, false], "the member and then the map, which the relay passes over");
    }
}

async fn maps_are_read_together(env: &Env) {
    let ids: Vec<CounterId> = (0..120).map(|nth| post(&format!("together-{nth}"))).collect();
    let stored = map(&[4, 64], 64, None, DecidedBy::Heat, 7);
    for id in ids.iter().step_by(3) {
        assert_eq!(env.maps.put_map(id, None, &stored).await, Ok(true));
    }
    let expected: Vec<_> = (0..120).map(|nth| (nth % 3 == 0).then_some(stored)).collect();
    assert_eq!(env.maps.maps(&ids).await, Ok(expected));
    assert_eq!(env.maps.maps(&[]).await, Ok(Vec::new()));
}

/// Rows under the deployment's shards and under two other homes; more keys than one request takes.
async fn members_are_found_under_the_home_that_has_them(env: &Env) {
    let (id, other) = (post("homes"), retweets("homes"));
    let count = |n: u64| ShardCount::new(n).unwrap();
    let homes = [shards(), count(32), count(64)];
    let (mut sought, mut expected) = (Vec::new(), Vec::new());
    let mut changes = Vec::new();
    let members: Vec<_> = (0..90).map(|nth| user(&format!("m-{nth}"))).collect();
    for (nth, member) in members.iter().enumerate() {
        let home = homes.get(nth % 4).copied();
        let places =
            CounterMap::new(homes.into_iter().collect(), count(64), None, DecidedBy::Heat, UnixMillis(1)).unwrap();
        let places: Vec<_> = places.places(member).collect();
        if let Some(home) = home {
            changes.push(Change::Member {
                counter: &id,
                user: member,
                present: true,
                at: UnixMillis(5),
                home: Some(home),
                region: None,
            });
        }
        // The first of those that stand for the same place is named.
        let here = home.map(|home| home.shard_of(member));
        expected.push(places.iter().copied().find(|place| Some(place.shard_of(member)) == here));
        sought.push(Sought { counter: id.clone(), member: member.clone(), homes: places });
    }
    commit(env, "homes", &changes).await;
    assert_eq!(env.maps.locate(&sought).await, Ok(expected));
    let elsewhere = Sought { counter: other, member: members[0].clone(), homes: homes.to_vec() };
    assert_eq!(env.maps.locate(&[elsewhere]).await, Ok(vec![None]), "each counter has rows of its own");
    assert_eq!(env.maps.locate(&[]).await, Ok(Vec::new()));
}

/// Every change record, with its partition key.
async fn records(stream: &dyn ChangeStream) -> Vec<(String, RecordKind)> {
    let label = stream.info().await.unwrap().label;
    let mut found = Vec::new();
    for shard in stream.shards(&label).await.unwrap() {
        let mut at = Some(stream.iterator(&label, &shard.id, Position::Oldest).await.unwrap());
        while let Some(iterator) = at {
            let page = stream.records(&iterator, 1000).await.unwrap();
            found.extend(page.records.iter().map(|raw| (raw.pk.clone().unwrap(), read(raw).unwrap().kind)));
            at = page.next.filter(|_| !page.records.is_empty());
        }
    }
    found
}
