//! The same of a deployment with several counters: what it has beside likes, as the first version with counters wrote it.

use tally_core::batch::Change;
use tally_core::definitions::{Definitions, Entry};
use tally_core::fence::{Advance, Commit, Fence, Offset, Reached, Terms};
use tally_core::format::Format;
use tally_core::ids::{CounterId, CounterKind, CounterName, MemberKey, RowKey, ShardCount};
use tally_core::ports::{DeploymentConfig as _, FencedRows as _, Rows as _};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;

use super::raw;
use super::script::{fence, likes, partition, user};
use super::tests::deployment;

const ITEMS: &str = include_str!("counters.txt");

fn counter(name: &str, kind: CounterKind) -> CounterId {
    CounterId { name: CounterName::new(name, kind).unwrap(), ..likes("p") }
}

fn definitions() -> Definitions {
    let retweets = Entry::set("retweets", "retweet", Some("unretweet"));
    Definitions::new(&[retweets, Entry::sum("views", "view", None)]).unwrap()
}

/// A fence that states all that one can.
fn stating(offset: u64) -> Fence {
    let terms = Terms { defs: 3, generation: 2, redo: Some(Offset(30)), sums_from: Offset(5), ..Terms::default() };
    Fence { terms, ..fence(offset) }
}

#[tokio::test]
async fn definitions_terms_and_cells_are_written_as_they_always_were() {
    let (emulator, ports) = deployment().await;
    ports.checkpoints.config(ShardCount::new(4).ok()).await.unwrap();
    assert_eq!(ports.checkpoints.define(&Definitions::likes_alone(), &definitions()).await, Ok(true));
    ports.likes.create_fence(&partition(), &stating(12)).await.unwrap();
    let (views, retweets, member) =
        (counter("views", CounterKind::Sum), counter("retweets", CounterKind::Set), user("u-1"));
    let changes = [
        Change::Cell { counter: &views, add: 25, from: Offset(12) },
        Change::Member {
            counter: &retweets,
            user: &member,
            present: true,
            at: UnixMillis(77),
            home: None,
            region: None,
        },
    ];
    let advance = Advance { from: stating(12), to: Offset(20) };
    assert_eq!(ports.likes.commit(&partition(), &advance, &changes).await, Commit::Done);
    let written = raw::lines(&emulator).await;
    assert_eq!(written, ITEMS.lines().collect::<Vec<_>>());
}

#[tokio::test]
async fn definitions_terms_and_cells_are_read_as_they_were_written() {
    let (emulator, ports) = deployment().await;
    raw::put(&emulator, &ITEMS.lines().collect::<Vec<_>>()).await;
    assert_eq!(ports.checkpoints.definitions().await, Ok(definitions()));
    assert_eq!(ports.checkpoints.format().await, Ok(Some(Format::written())));
    assert_eq!(ports.likes.fence(&partition()).await, Ok(Some(stating(20))));
    let (views, retweets) = (counter("views", CounterKind::Sum), counter("retweets", CounterKind::Set));
    let reached = Reached { to: Offset(20), generation: 2 };
    assert_eq!(ports.likes.cells(&partition(), std::slice::from_ref(&views)).await, Ok(vec![Some(reached)]));
    let shards = ShardCount::new(4).unwrap();
    let cell = RowKey::of_cell(&views, partition().index, shards);
    let weights = ports.rows.weights(&cell, None).await.unwrap().items;
    assert_eq!(weights, [(MemberKey::new("\u{1}cell/likes/3").unwrap(), Some(Weight::new(25).unwrap()))]);
    let key = RowKey::of(&retweets, &user("u-1"), shards);
    assert!(ports.rows.like(&key, &user("u-1")).await.unwrap().is_some());
}
