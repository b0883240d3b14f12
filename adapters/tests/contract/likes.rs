//! Rows that move with a fence, rows read.

use std::collections::BTreeSet;

use tally_core::batch::{BatchLimits, Change};
use tally_core::changes::Nonce;
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Next, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, UserId};
use tally_core::ports::Segment;
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;

use crate::engine::{Env, in_process, shards};

pub(crate) async fn contract(env: &Env) {
    a_fence_is_created_once(env).await;
    the_partitions_a_topic_had_at_first_are_written_down_once_or_told_by_its_fences(env).await;
    rows_and_fence_move_together_or_not_at_all(env).await;
    a_fence_that_differs_in_any_part_refuses(env).await;
    a_transaction_takes_as_many_rows_as_a_batch_may_have(env).await;
    a_reset_replaces_the_fence_that_was_seen(env).await;
    rows_are_paged_in_the_order_of_users(env).await;
    a_scan_meets_every_row_once_and_the_rows_of_a_key_together(env).await;
    a_marker_is_no_like_and_weighs_nothing(env).await;
}

pub(crate) fn partition(topic: &str, index: u32) -> Partition {
    Partition { topic: topic.into(), index }
}

pub(crate) fn fence(offset: u64) -> Fence {
    Fence::new(Offset(offset), 0, TopicId("t-1".into()))
}

pub(crate) fn post(id: &str) -> CounterId {
    CounterId::likes(PostId::new(id).unwrap())
}

pub(crate) fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

/// Likes or unlikes behind a fence of their own topic, one batch.
pub(crate) async fn write(env: &Env, topic: &str, action: Action, rows: &[(CounterId, UserId)], at: u64) {
    let changes: Vec<_> = rows.iter().map(|(post, user)| Change::like(post, user, action, UnixMillis(at))).collect();
    commit(env, topic, &changes).await;
}

/// Writes changes through the first partition of a topic of their own.
pub(crate) async fn commit(env: &Env, topic: &str, changes: &[Change<'_>]) {
    let partition = partition(topic, 0);
    let from = match env.fenced.fence(&partition).await.unwrap() {
        Some(fence) => fence,
        None => {
            env.fenced.create_fence(&partition, &fence(0)).await.unwrap();
            fence(0)
        }
    };
    let advance = Advance { to: from.offset.next(), from };
    assert_eq!(env.fenced.commit(&partition, &advance, changes).await, Commit::Done);
}

async fn a_fence_is_created_once(env: &Env) {
    let partition = partition("created", 0);
    assert_eq!(env.fenced.fence(&partition).await, Ok(None));
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    env.fenced.create_fence(&partition, &fence(9)).await.unwrap();
    assert_eq!(env.fenced.fence(&partition).await, Ok(Some(fence(5))));
}

async fn the_partitions_a_topic_had_at_first_are_written_down_once_or_told_by_its_fences(env: &Env) {
    for partitions in [12, 24] {
        assert_eq!(env.fenced.first_seen("grown", partitions).await, Ok(12));
    }
    env.fenced.create_fence(&partition("earlier", 3), &fence(0)).await.unwrap();
    assert_eq!(env.fenced.first_seen("earlier", 24).await, Ok(4), "from before it was written down");
    assert_eq!(env.fenced.fences("grown").await, Ok(vec![]), "it is no fence");
}

async fn rows_and_fence_move_together_or_not_at_all(env: &Env) {
    let partition = partition("moves", 0);
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    let long = "é".repeat(128);
    for (n, (post_id, user_id)) in [("a#3", "\"quoted\""), ("日本#", "👍🏽"), (&long, &long)].into_iter().enumerate()
    {
        let (post, user) = (post(post_id), user(user_id));
        let key = RowKey::of(&post, &user, shards());
        let from = fence(5 + 2 * n as u64);
        let like = Change::like(&post, &user, Action::Like, UnixMillis(77));
        let advance = Advance { from: from.clone(), to: from.offset.next() };
        assert_eq!(env.fenced.commit(&partition, &advance, &[like]).await, Commit::Done);
        let found = env.rows.like(&key, &user).await.unwrap().unwrap();
        assert_eq!((found.user.clone(), found.liked_at), (user.clone(), UnixMillis(77)));

        let unlike = Change::like(&post, &user, Action::Unlike, UnixMillis(77));
        let late = env.fenced.commit(&partition, &advance, &[unlike]).await;
        assert_eq!(late.next(), Next::Reload, "{late:?}");
        assert_eq!(env.rows.like(&key, &user).await.unwrap(), Some(found), "a late copy changes nothing");

        let from = advance.reached();
        let advance = Advance { to: from.offset.next(), from };
        assert_eq!(env.fenced.commit(&partition, &advance, &[unlike]).await, Commit::Done);
        assert_eq!(env.rows.like(&key, &user).await, Ok(None));
        assert_eq!(env.fenced.fence(&partition).await, Ok(Some(advance.reached())));
    }
}

async fn a_fence_that_differs_in_any_part_refuses(env: &Env) {
    let partition = partition("differs", 0);
    let absent = Advance { from: fence(5), to: Offset(6) };
    assert_eq!(env.fenced.commit(&partition, &absent, &[]).await.next(), Next::Reload, "no fence, no rows");
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    let others = [fence(4), Fence { cfg: 1, ..fence(5) }, Fence { topic: TopicId("t-2".into()), ..fence(5) }];
    for from in others {
        let advance = Advance { from, to: Offset(9) };
        assert_eq!(env.fenced.commit(&partition, &advance, &[]).await.next(), Next::Reload, "{advance:?}");
    }
    assert_eq!(env.fenced.fence(&partition).await, Ok(Some(fence(5))));
}

async fn a_transaction_takes_as_many_rows_as_a_batch_may_have(env: &Env) {
    let rows: Vec<_> = (0..BatchLimits::MAX_ROWS).map(|n| (post("wide"), user(&format!("u-{n}")))).collect();
    write(env, "wide", Action::Like, &rows, 1).await;
    let mut found = 0;
    for shard in shards().all() {
        found += env.rows.users(&RowKey { counter: post("wide"), shard }, None).await.unwrap().items.len();
    }
    assert_eq!(found, BatchLimits::MAX_ROWS);
    write(env, "wide", Action::Unlike, &rows, 2).await;

    let (post, user) = (post("wide"), user("u"));
    let change = Change::like(&post, &user, Action::Like, UnixMillis(1));
    let advance = Advance { from: fence(2), to: Offset(3) };
    let outcome = env.fenced.commit(&partition("wide", 0), &advance, &[change; BatchLimits::MAX_ROWS + 1]).await;
    assert!(matches!(outcome, Commit::Invalid(_)), "{outcome:?}");
}

async fn a_reset_replaces_the_fence_that_was_seen(env: &Env) {
    for index in [10, 0, 2] {
        env.fenced.create_fence(&partition("reset", index), &fence(u64::from(index))).await.unwrap();
    }
    env.fenced.create_fence(&partition("reset-too", 1), &fence(1)).await.unwrap();
    let (partition, to) = (partition("reset", 2), Fence { topic: TopicId("t-2".into()), ..fence(0) });
    assert_eq!(env.fenced.replace_fences(&partition, &fence(3).into(), &to.clone().into()).await, Ok(false));
    assert_eq!(env.fenced.replace_fences(&partition, &fence(2).into(), &to.clone().into()).await, Ok(true));
    assert_eq!(
        env.fenced.replace_fences(&partition, &fence(2).into(), &to.clone().into()).await,
        Ok(false),
        "the condition holds once"
    );
    let fences = env.fenced.fences("reset").await.unwrap();
    let found: Vec<_> = fences.iter().map(|(partition, fence)| (partition.index, fence.offset.0, fence.cfg)).collect();
    assert_eq!(found, [(0, 0, 0), (2, 0, 1), (10, 10, 0)]);
}

async fn rows_are_paged_in_the_order_of_users(env: &Env) {
    let post = post("paged");
    let rows: Vec<_> = (0..40).map(|n| (post.clone(), user(&format!("u-{n:02}")))).collect();
    write(env, "paged", Action::Like, &rows, 7).await;
    let shard = shards().shard_of("u-00");
    let key = RowKey { counter: post.clone(), shard };
    mark(env, &key).await;
    let expected: Vec<_> = rows.iter().map(|(_, user)| user).filter(|user| shards().shard_of(user) == shard).collect();
    assert!(expected.len() > 3);

    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = env.rows.likes(&key, after.as_ref(), Some(3)).await.unwrap();
        assert!(page.items.len() <= 3 && page.half_units > 0);
        paged.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged.iter().map(|like| &like.user).collect::<Vec<_>>(), expected);
    assert!(paged.iter().all(|like| like.liked_at == UnixMillis(7)));
    let users = env.rows.users(&key, None).await.unwrap();
    assert_eq!((users.items.iter().map(|row| &row.user).collect::<Vec<_>>(), users.next), (expected.clone(), None));
    let weights = env.rows.weights(&key, None).await.unwrap();
    let expected: Vec<_> = expected.into_iter().map(|user| (MemberKey::from(user), Some(Weight::ONE))).collect();
    assert_eq!((weights.items, weights.next), (expected, None));
}

async fn a_scan_meets_every_row_once_and_the_rows_of_a_key_together(env: &Env) {
    let rows: Vec<_> = (0..90).map(|n| (post(&format!("scanned-{}", n % 7)), user(&format!("u-{n}")))).collect();
    write(env, "scanned", Action::Like, &rows, 1).await;
    let key = RowKey::of(&rows[0].0, &rows[0].1, shards());
    mark(env, &key).await;
    let expected: BTreeSet<_> =
        rows.iter().map(|(post, user)| (RowKey::of(post, user, shards()).to_string(), user.to_string())).collect();

    let mut met = BTreeSet::new();
    let mut finished: BTreeSet<String> = BTreeSet::new();
    for index in 0..3 {
        let mut after = None;
        let mut current: Option<String> = None;
        loop {
            let page = env.rows.scan(Segment { index, of: 3 }, after.as_ref()).await.unwrap();
            for row in page.items {
                if current.as_ref() != Some(&row.pk) {
                    finished.extend(current.replace(row.pk.clone()));
                    assert!(!finished.contains(&row.pk), "the rows of {} are torn apart", row.pk);
                }
                if row.pk.starts_with("scanned-") {
                    assert!(met.insert((row.pk, row.sort)), "met twice");
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        finished.extend(current);
    }
    assert_eq!(met, expected);
}

async fn a_marker_is_no_like_and_weighs_nothing(env: &Env) {
    let key: RowKey = "marked#1".parse().unwrap();
    mark(env, &key).await;
    assert_eq!(env.rows.users(&key, None).await.unwrap().items, []);
    assert_eq!(env.rows.likes(&key, None, None).await.unwrap().items, []);
    assert_eq!(env.rows.weights(&key, None).await.unwrap().items, []);
}

/// Puts a recount's marker beside rows, where the engine has them.
async fn mark(env: &Env, key: &RowKey) {
    if let Some(real) = env.real() {
        real.markers.mark(&[(key.clone(), Nonce(1))]).await.unwrap();
    }
}

/// How much is read at once is no part of the contract: the in-memory twin reads less.
#[tokio::test]
async fn a_recount_reads_at_most_a_thousand_rows_at_once() {
    let (_, connection) = in_process();
    let env = Env::dynamodb(&connection).await;
    let (post, shard) = (post("hot"), shards().shard_of("u-0"));
    let users = (0..).map(|n| user(&format!("u-{n}"))).filter(|user| shards().shard_of(user) == shard);
    let rows: Vec<_> = users.take(1_200).map(|user| (post.clone(), user)).collect();
    for rows in rows.chunks(BatchLimits::MAX_ROWS) {
        write(&env, "hot", Action::Like, rows, 1).await;
    }
    let key = RowKey { counter: post, shard };
    let first = env.rows.weights(&key, None).await.unwrap();
    let second = env.rows.weights(&key, first.next.as_ref()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (1_000, 200, None));
    let first = env.rows.users(&key, None).await.unwrap();
    let second = env.rows.users(&key, first.next.as_ref()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (1_000, 200, None), "nor does an erasure");
}
