//! Cells of sums: what one partition has added, under a condition beside the fence's.

use tally_core::batch::Change;
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, Reached, Refused, Terms};
use tally_core::ids::{CounterId, CounterKind, CounterName, MemberKey, PostId, RowKey};

use crate::engine::{Env, shards};
use crate::likes::{fence, partition};

pub(crate) async fn contract(env: &Env) {
    a_cell_is_added_to_once_whatever_becomes_of_the_fence(env).await;
    offsets_that_begin_anew_are_counted_from_their_beginning(env).await;
    two_partitions_have_two_cells_and_neither_is_a_member(env).await;
}

pub(crate) fn views(post: &str) -> CounterId {
    let name = CounterName::new("views", CounterKind::Sum).unwrap();
    CounterId { post: PostId::new(post).unwrap(), name }
}

/// Adds `add` by a transaction from `from` to `to`, whose cell has to have nothing from `first` on.
async fn add(env: &Env, partition: &Partition, from: &Fence, to: u64, (add, first): (i64, u64)) -> Commit {
    let counter = views("p");
    let change = Change::Cell { counter: &counter, add, from: Offset(first) };
    let advance = Advance { from: from.clone(), to: Offset(to) };
    env.fenced.commit(partition, &advance, &[change]).await
}

async fn sum(env: &Env, partition: &Partition) -> i64 {
    let key = RowKey::of_cell(&views("p"), partition.index, shards());
    let cell = format!("\u{1}cell/{}/{}", partition.topic, partition.index);
    let rows = env.rows.weights(&key, None).await.unwrap().items;
    let found = rows.iter().find(|(member, _)| *member == MemberKey::new(&cell).unwrap());
    found.map_or(0, |(_, weight)| weight.unwrap().get())
}

async fn reached(env: &Env, partition: &Partition) -> Option<Reached> {
    let cells = env.fenced.cells(partition, &[views("other"), views("p")]).await.unwrap();
    assert_eq!(cells[0], None);
    cells[1]
}

/// The fence moved to `offset`, on other terms.
async fn moved(env: &Env, partition: &Partition, offset: u64, terms: Terms) -> Fence {
    let seen = env.fenced.fence(partition).await.unwrap().unwrap();
    let to = Fence { offset: Offset(offset), terms, ..seen.clone() };
    assert_eq!(env.fenced.replace_fences(partition, &seen.clone().into(), &to.clone().into()).await, Ok(true));
    let stands = env.fenced.fence(partition).await.unwrap().unwrap();
    assert_eq!(stands, Fence { cfg: seen.cfg + 1, ..to });
    stands
}

const AHEAD: [Refused; 2] = [Refused::Nothing, Refused::Condition];

async fn a_cell_is_added_to_once_whatever_becomes_of_the_fence(env: &Env) {
    let partition = partition("sums", 0);
    env.fenced.create_fence(&partition, &fence(0)).await.unwrap();
    assert_eq!(add(env, &partition, &fence(0), 3, (7, 0)).await, Commit::Done);
    assert_eq!(reached(env, &partition).await, Some(Reached { to: Offset(3), generation: 0 }));
    assert!(matches!(add(env, &partition, &fence(0), 3, (7, 0)).await, Commit::Cancelled(_)), "a late copy");
    assert_eq!(add(env, &partition, &fence(3), 5, (-9, 3)).await, Commit::Done);
    assert_eq!(sum(env, &partition).await, -2);

    let redo = Terms { redo: Some(Offset(5)), defs: 4, ..Terms::default() };
    let back = moved(env, &partition, 1, redo).await;
    assert_eq!(add(env, &partition, &back, 4, (7, 1)).await, Commit::Cancelled(AHEAD.to_vec()));
    assert_eq!(env.fenced.fence(&partition).await, Ok(Some(back.clone())), "nothing moved");
    assert_eq!(add(env, &partition, &back, 6, (4, 5)).await, Commit::Done);
    assert_eq!(reached(env, &partition).await, Some(Reached { to: Offset(6), generation: 0 }));
    assert_eq!(sum(env, &partition).await, 2);
}

async fn offsets_that_begin_anew_are_counted_from_their_beginning(env: &Env) {
    let partition = partition("sums", 0);
    let anew = moved(env, &partition, 0, Terms { generation: 1, ..Terms::default() }).await;
    assert_eq!(add(env, &partition, &anew, 2, (10, 0)).await, Commit::Done);
    assert_eq!(reached(env, &partition).await, Some(Reached { to: Offset(2), generation: 1 }));
    let behind = moved(env, &partition, 2, Terms { sums_from: Offset(9), ..Terms::default() }).await;
    let older = add(env, &partition, &behind, 3, (1, 2)).await;
    assert_eq!(older, Commit::Cancelled(AHEAD.to_vec()), "an older generation adds nothing");
    assert_eq!(sum(env, &partition).await, 12);
}

async fn two_partitions_have_two_cells_and_neither_is_a_member(env: &Env) {
    let (one, other) = (partition("sums", 1), partition("sums", 1 + u32::from(shards().get())));
    for partition in [&one, &other] {
        env.fenced.create_fence(partition, &fence(0)).await.unwrap();
        assert_eq!(add(env, partition, &fence(0), 1, (5, 0)).await, Commit::Done);
    }
    let key = RowKey::of_cell(&views("p"), 1, shards());
    assert_eq!(key, RowKey::of_cell(&views("p"), other.index, shards()));
    assert_eq!(env.rows.weights(&key, None).await.unwrap().items.len(), 2);
    assert_eq!(env.rows.users(&key, None).await.unwrap().items, []);
    assert_eq!((sum(env, &one).await, sum(env, &other).await), (5, 5));
}
