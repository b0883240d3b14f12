//! What the adapter makes of an engine that throttles, breaks connections, and carries out what it never answers.

use std::time::Duration;

use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::batch::Change;
use tally_core::event::Action;
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Next, Offset, Reached, Refused};
use tally_core::ids::RowKey;
use tally_emulator::{Emulator, Fault as Injected, Rule};
use tokio::time::Instant;

use crate::cells::views;
use crate::engine::{BEGAN, Env, in_process, shards};
use crate::likes::{fence, partition, post, user, write};

async fn env() -> (Emulator, Env) {
    let (emulator, connection) = in_process();
    let env = Env::dynamodb(&connection).await;
    (emulator, env)
}

fn sent(emulator: &Emulator, operation: &str) -> u64 {
    emulator.stats().requests.get(operation).copied().unwrap_or(0)
}

async fn commit(env: &Env, from: u64) -> Commit {
    let advance = Advance { from: fence(from), to: fence(from + 1).offset };
    env.fenced.commit(&partition("t", 0), &advance, &[]).await
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_unknown_where_no_answer_came_and_certain_where_one_did() {
    let (emulator, env) = env().await;
    env.fenced.create_fence(&partition("t", 0), &fence(0)).await.unwrap();
    let on = |fault| vec![Rule::new(fault).on("TransactWriteItems")];

    emulator.set_faults(on(Injected::Throttle));
    assert_eq!(commit(&env, 0).await.next(), Next::Again);
    emulator.set_faults(on(Injected::Conflict));
    assert_eq!(commit(&env, 0).await, Commit::Cancelled(vec![Refused::Conflict]));
    emulator.set_faults(on(Injected::Outage));
    assert!(matches!(commit(&env, 0).await, Commit::Unknown(_)));
    emulator.set_faults(on(Injected::InternalError { applied: Some(false) }));
    assert!(matches!(commit(&env, 0).await, Commit::Unknown(_)));
    emulator.set_faults(vec![]);
    assert_eq!(env.fenced.fence(&partition("t", 0)).await, Ok(Some(fence(0))), "none of them happened");

    emulator.set_faults(on(Injected::DropReply));
    assert!(matches!(commit(&env, 0).await, Commit::Unknown(_)));
    emulator.set_faults(vec![]);
    assert_eq!(env.fenced.fence(&partition("t", 0)).await, Ok(Some(fence(1))), "this one did");
    assert_eq!(commit(&env, 0).await.next(), Next::Reload);
}

#[tokio::test(start_paused = true)]
async fn one_lost_reply_is_repeated_and_changes_nothing_twice() {
    let (emulator, env) = env().await;
    env.fenced.create_fence(&partition("t", 0), &fence(0)).await.unwrap();
    emulator.set_faults(vec![Rule::new(Injected::DropReply).on("TransactWriteItems").nth(1)]);
    let outcome = commit(&env, 0).await;
    assert!(matches!(outcome.next(), Next::Go | Next::Reload), "{outcome:?}");
    assert_eq!(env.fenced.fence(&partition("t", 0)).await, Ok(Some(fence(1))));
}

#[tokio::test(start_paused = true)]
async fn a_ghost_finds_the_fence_moved() {
    let (emulator, env) = env().await;
    let row = [(post("p"), user("u"))];
    write(&env, "t", Action::Like, &row, 1).await;
    let ghost = Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 };
    emulator.set_faults(vec![Rule::new(ghost).on("TransactWriteItems").calls(1, 3)]);
    let change = tally_core::batch::Change::like(&row[0].0, &row[0].1, Action::Unlike, BEGAN);
    let advance = Advance { from: fence(1), to: fence(2).offset };
    let outcome = env.fenced.commit(&partition("t", 0), &advance, &[change]).await;
    assert!(matches!(outcome, Commit::Unknown(_)), "{outcome:?}");
    emulator.set_faults(vec![]);
    write(&env, "t", Action::Like, &row, 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let key = tally_core::ids::RowKey::of(&row[0].0, &row[0].1, crate::engine::shards());
    assert!(env.rows.like(&key, &row[0].1).await.unwrap().is_some(), "the ghost found another fence");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_in_paused_time_too() {
    let (emulator, connection) = in_process();
    Env::dynamodb(&connection).await;
    let settings = Settings { attempts: 1, ..Settings::local("") };
    let connection = Connection::in_process(&settings, emulator.http_client(), BEGAN);
    let env = Env::dynamodb(&connection).await;
    emulator.set_faults(vec![Rule::new(Injected::Latency { min_ms: 60_000, max_ms: 60_000 }).on("GetItem")]);
    let began = Instant::now();
    let outcome = env.fenced.fence(&partition("t", 0)).await;
    assert!(matches!(outcome, Err(Fault::Transient(_))), "{outcome:?}");
    assert_eq!(began.elapsed(), settings.attempt_timeout);
}

#[tokio::test(start_paused = true)]
async fn cells_and_rows_that_a_batch_left_out_are_asked_for_again_after_a_wait_and_for_a_while() {
    let (emulator, env) = env().await;
    let partition = partition("sums", 0);
    env.fenced.create_fence(&partition, &fence(0)).await.unwrap();
    let (views, users): (Vec<_>, Vec<_>) = (0..90).map(|n| (views(&format!("p-{n}")), user(&format!("u-{n}")))).unzip();
    let cells: Vec<_> = views.iter().map(|counter| Change::Cell { counter, add: 1, from: Offset(0) }).collect();
    let advance = Advance { from: fence(0), to: Offset(1) };
    assert_eq!(env.fenced.commit(&partition, &advance, &cells).await, Commit::Done);
    let pairs: Vec<_> = views.iter().map(|counter| (post(counter.post.as_str()), users[0].clone())).collect();
    write(&env, "t", Action::Like, &pairs, 1).await;
    let keys: Vec<_> = pairs.iter().map(|(post, user)| RowKey::of(post, user, shards())).collect();

    let left_out = |rule: Rule| vec![rule.on("BatchGetItem")];
    emulator.set_faults(left_out(Rule::new(Injected::Unprocessed).calls(1, 3)));
    let began = Instant::now();
    let there = Some(Reached { to: Offset(1), generation: 0 });
    assert_eq!(env.fenced.cells(&partition, &views).await, Ok(vec![there; views.len()]));
    emulator.set_faults(left_out(Rule::new(Injected::Unprocessed).calls(1, 3)));
    assert_eq!(env.rows.present(&keys, &users[0]).await, Ok(vec![true; keys.len()]));
    assert!(began.elapsed() > Duration::ZERO, "it waited");

    emulator.set_faults(left_out(Rule::new(Injected::Unprocessed)));
    let (mut whole, mut given_up, mut waits) = (0, 0, std::collections::BTreeSet::new());
    for _ in 0..40 {
        let (began, asked) = (Instant::now(), sent(&emulator, "BatchGetItem"));
        match env.fenced.cells(&partition, &views).await {
            Ok(found) => {
                assert_eq!(found, vec![there; views.len()]);
                whole += 1;
            }
            Err(Fault::Throttled(message)) => {
                assert!(
                    message.starts_with("table likes: ") && message.ends_with("were left out 8 times"),
                    "{message}"
                );
                assert_eq!(sent(&emulator, "BatchGetItem") - asked, 8);
                given_up += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_millis(3_200), "{:?}", began.elapsed());
        waits.insert(began.elapsed());
    }
    println!("{whole} read whole, {given_up} given up");
    assert!(whole > 0 && waits.len() > 20, "no two wait alike: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_as_often_as_the_settings_say_and_a_refusal_is_not() {
    let (emulator, env) = env().await;
    let attempts = u64::from(Settings::local("").attempts);
    let key = "p#0".parse().unwrap();
    let read = async |fault: Option<Injected>| {
        emulator.set_faults(fault.map(|fault| Rule::new(fault).on("GetItem")).into_iter().collect());
        let before = sent(&emulator, "GetItem");
        let class = env.rows.like(&key, &user("u")).await.map_err(|fault| fault.class());
        (class, sent(&emulator, "GetItem") - before)
    };
    assert!(attempts > 1);
    assert_eq!(read(None).await, (Ok(None), 1));
    assert_eq!(read(Some(Injected::Throttle)).await, (Err("throttled"), attempts));
    for fault in [Injected::Outage, Injected::DropReply, Injected::InternalError { applied: Some(false) }] {
        assert_eq!(read(Some(fault)).await, (Err("transient"), attempts), "{fault:?}");
    }
    emulator.set_faults(vec![]);
    let before = sent(&emulator, "TransactWriteItems");
    assert!(matches!(commit(&env, 0).await, Commit::Cancelled(_)), "there is no fence");
    assert_eq!(sent(&emulator, "TransactWriteItems"), before + 1);
}
