//! Tests the table `likes` on every DynamoDB engine: what statements write, what readers find, and each behaviour of
//! PartiQL that the writer relies on.

use std::collections::BTreeSet;
use std::sync::Arc;

use tally_adapters::dynamodb::claims::Confirmed;
use tally_adapters::dynamodb::registers::{Advanced, CellUpdate};
use tally_adapters::dynamodb::{Cursor, Segment};
use tally_core::changes::Nonce;
use tally_core::definitions::Direction;
use tally_core::ids::{CounterId, CounterKind, CounterName, MemberKey, PostId, Region, RowKey, UserId};
use tally_core::register::{Answer, Cell, Change, Member, Progress, Row, Version, Write};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};
use tally_core::weight::Weight;
use tally_service::Clock;
use tally_testkit::{BEGAN, every, write_all};

use crate::engine::{Env, in_process, shards};

pub(crate) async fn contract(env: &Env) {
    a_row_is_what_the_newest_event_says(env).await;
    a_request_has_an_outcome_for_each_statement(env).await;
    a_cell_is_only_updated_from_its_current_state(env).await;
    rows_are_paged_in_the_order_of_users(env).await;
    a_scan_returns_every_row_once_and_the_rows_of_a_key_together(env).await;
}

pub(crate) fn post(id: &str) -> CounterId {
    CounterId::likes(PostId::new(id).unwrap())
}

pub(crate) fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

/// When tombstones expire, in seconds: long after any test.
const GONE: u64 = 4_000_000_000;

fn confirmed() -> Confirmed {
    Confirmed::now(Clock::starting_at(BEGAN))
}

fn version(offset: u64) -> Version {
    Version::new(1, true, Offset(offset))
}

fn like(post: &CounterId, user: &UserId, direction: Direction, offset: u64) -> Arc<Write> {
    let change = match direction {
        Direction::Add => Change::Put(Member { region: Region::new("eu"), ..UnixMillis(offset).into() }),
        Direction::Remove => Change::Remove,
    };
    let row = Row { key: RowKey::of(post, user, shards()), member: user.clone() };
    Arc::new(Write { row, version: version(offset), change })
}

/// Likes or unlikes of different rows, all at one offset.
pub(crate) async fn write(env: &Env, direction: Direction, rows: &[(CounterId, UserId)], offset: u64) {
    for rows in rows.chunks(Progress::STATEMENTS) {
        let writes: Vec<_> = rows.iter().map(|(post, user)| like(post, user, direction, offset)).collect();
        let written = write_all(&env.registers, &writes, GONE, confirmed()).await;
        assert!(written.iter().all(|written| matches!(written, Ok(Answer::Stored | Answer::Older(_)))), "{written:?}");
    }
}

async fn a_row_is_what_the_newest_event_says(env: &Env) {
    let long = "é".repeat(128);
    for (post_id, user_id) in [("a#3", "\"quoted\""), ("日本#", "👍🏽"), ("it's", "o'clock?"), (&long, &long)] {
        let (post, user) = (post(post_id), user(user_id));
        let key = RowKey::of(&post, &user, shards());
        let send = async |direction, offset| {
            let write = like(&post, &user, direction, offset);
            let written = write_all(&env.registers, &[write], GONE, confirmed()).await.remove(0);
            let found = env.rows.like(&key, &user).await.unwrap();
            (written, found.map(|like| like.liked_at.0))
        };
        let older = |than| Ok(Answer::Older(version(than)));
        assert_eq!(send(Direction::Add, 5).await, (Ok(Answer::Stored), Some(5)));
        assert_eq!(send(Direction::Add, 5).await, (older(5), Some(5)), "a copy changes nothing");
        assert_eq!(send(Direction::Remove, 4).await, (older(5), Some(5)));
        assert_eq!(send(Direction::Add, 6).await, (Ok(Answer::Stored), Some(6)));
        assert_eq!(send(Direction::Remove, 7).await, (Ok(Answer::Stored), None));
        assert_eq!(send(Direction::Add, 6).await, (older(7), None), "the tombstone knows it");
        assert_eq!(send(Direction::Add, 8).await, (Ok(Answer::Stored), Some(8)));
        let row = env.rows.users(&key, None).await.unwrap().items;
        assert!(row.iter().all(|row| row.gone.is_none()), "a like again is no tombstone: {row:?}");
    }
}

async fn a_request_has_an_outcome_for_each_statement(env: &Env) {
    let post = post("mixed");
    let users: Vec<_> = (0..Progress::STATEMENTS).map(|n| user(&format!("u-{n}"))).collect();
    let first: Vec<_> = users.iter().step_by(2).map(|user| (post.clone(), user.clone())).collect();
    write(env, Direction::Add, &first, 9).await;
    let direction = |n: usize| if n.is_multiple_of(3) { Direction::Remove } else { Direction::Add };
    let offset = |n: usize| if n.is_multiple_of(5) { 3 } else { 11 };
    let writes: Vec<_> = users.iter().enumerate().map(|(n, user)| like(&post, user, direction(n), offset(n))).collect();
    let written = write_all(&env.registers, &writes, GONE, confirmed()).await;
    for (n, written) in written.into_iter().enumerate() {
        let stands = n % 2 == 0 && offset(n) < 9;
        assert_eq!(written, if stands { Ok(Answer::Older(version(9))) } else { Ok(Answer::Stored) }, "{n}");
        let there = env.rows.like(&RowKey::of(&post, &users[n], shards()), &users[n]).await.unwrap().is_some();
        assert_eq!(there, stands || direction(n) == Direction::Add, "{n}");
    }
}

async fn a_cell_is_only_updated_from_its_current_state(env: &Env) {
    let partition = Partition { topic: "views".into(), index: 3 };
    let name = CounterName::new("views", CounterKind::Sum).unwrap();
    let counter = CounterId { post: PostId::new("viewed").unwrap(), name };
    let key = RowKey::of_cell(&counter, partition.index, shards());
    let cell = |n, offset| Cell { n, to: version(offset) };
    let update = async |from: Option<Cell>, to: Cell| {
        let update = CellUpdate { key: key.clone(), from, to };
        let mut advanced = env.registers.advance_cells(&partition, &[update], confirmed()).await;
        advanced.remove(0)
    };
    assert_eq!(update(None, cell(4, 1)).await, Advanced::Stored);
    assert!(matches!(update(None, cell(9, 2)).await, Advanced::Refused(_)), "there is one");
    assert_eq!(update(Some(cell(4, 1)), cell(-6, 2)).await, Advanced::Stored);
    assert_eq!(update(Some(cell(4, 1)), cell(11, 3)).await, Advanced::Refused(Some(cell(-6, 2))));
    let read = env.registers.read_cells(&partition, std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(read, [Ok(Some(cell(-6, 2)))]);
}

async fn rows_are_paged_in_the_order_of_users(env: &Env) {
    let post = post("paged");
    let rows: Vec<_> = (0..40).map(|n| (post.clone(), user(&format!("u-{n:02}")))).collect();
    write(env, Direction::Add, &rows, 7).await;
    let shard = shards().shard_of("u-00");
    let key = RowKey { counter: post.clone(), shard };
    mark(env, &key).await;
    let expected: Vec<_> = rows.iter().map(|(_, user)| user).filter(|user| shards().shard_of(user) == shard).collect();
    assert!(expected.len() > 3);

    let page = async |after: Option<&Cursor>| {
        let page = env.rows.likes(&key, after, Some(3)).await?;
        assert!(page.items.len() <= 3 && page.half_units > 0);
        Ok(page)
    };
    let paged = every(page).await.unwrap();
    assert_eq!(paged.iter().map(|like| &like.user).collect::<Vec<_>>(), expected);
    assert!(paged.iter().all(|like| like.liked_at == UnixMillis(7)));
    let users = env.rows.users(&key, None).await.unwrap();
    assert_eq!((users.items.iter().map(|row| &row.user).collect::<Vec<_>>(), users.next), (expected.clone(), None));
    let weights = env.rows.weights(&key, None).await.unwrap();
    let expected: Vec<_> = expected.into_iter().map(|user| (MemberKey::from(user), Some(Weight::ONE))).collect();
    assert_eq!((weights.items, weights.next), (expected, None));
}

async fn a_scan_returns_every_row_once_and_the_rows_of_a_key_together(env: &Env) {
    let rows: Vec<_> = (0..90).map(|n| (post(&format!("scanned-{}", n % 7)), user(&format!("u-{n}")))).collect();
    write(env, Direction::Add, &rows, 1).await;
    let key = RowKey::of(&rows[0].0, &rows[0].1, shards());
    mark(env, &key).await;
    let expected: BTreeSet<_> =
        rows.iter().map(|(post, user)| (RowKey::of(post, user, shards()).to_string(), user.to_string())).collect();

    let mut met = BTreeSet::new();
    let mut finished: BTreeSet<String> = BTreeSet::new();
    for index in 0..3 {
        let mut current: Option<String> = None;
        for row in every(async |after| env.rows.scan(Segment { index, of: 3 }, after).await).await.unwrap() {
            if current.as_ref() != Some(&row.pk) {
                finished.extend(current.replace(row.pk.clone()));
                assert!(!finished.contains(&row.pk), "the rows of {} are torn apart", row.pk);
            }
            if row.pk.starts_with("scanned-") {
                assert!(met.insert((row.pk, row.sort)), "met twice");
            }
        }
        finished.extend(current);
    }
    assert_eq!(met, expected);
}

/// Puts a recount's marker among the rows.
async fn mark(env: &Env, key: &RowKey) {
    env.rows.mark(&[(key.clone(), Nonce(1))]).await.unwrap();
}

#[tokio::test]
async fn a_recount_reads_at_most_a_thousand_rows_at_once() {
    let (_store, env) = in_process().await;
    let (post, shard) = (post("hot"), shards().shard_of("u-0"));
    let users = (0..).map(|n| user(&format!("u-{n}"))).filter(|user| shards().shard_of(user) == shard);
    let rows: Vec<_> = users.take(1_200).map(|user| (post.clone(), user)).collect();
    write(&env, Direction::Add, &rows, 1).await;
    let key = RowKey { counter: post, shard };
    let first = env.rows.weights(&key, None).await.unwrap();
    let second = env.rows.weights(&key, first.next.as_ref()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (1_000, 200, None));
    let first = env.rows.users(&key, None).await.unwrap();
    let second = env.rows.users(&key, first.next.as_ref()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (1_000, 200, None), "nor does an erasure");
}
