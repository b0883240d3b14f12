//! What the adapter makes of an engine that throttles, breaks connections, and carries out what it never answers.

use std::time::Duration;

use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::batch::Change;
use tally_core::event::Action;
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Next, Offset, Reached, Refused};
use tally_core::ids::RowKey;
use tally_core::ports::{Applied, Judged, MarkerPut};
use tally_core::window::{Form, Marker, Verdict};
use tally_emulator::{Emulator, Fault as Injected, Rule};
use tokio::time::Instant;

use crate::cells::views;
use crate::counts::{entry, touch, update};
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
    emulator.set_faults(vec![
        Rule::new(Injected::DropReply).on("TransactWriteItems").nth(1),
        Rule::new(Injected::DropReply).on("UpdateItem").nth(1),
    ]);
    let outcome = commit(&env, 0).await;
    assert!(matches!(outcome.next(), Next::Go | Next::Reload), "{outcome:?}");
    assert_eq!(env.fenced.fence(&partition("t", 0)).await, Ok(Some(fence(1))));

    let first = update(1, 1, 1, vec![touch(0, 1)]);
    let Applied::Refused(Some(counter)) = env.counts.apply(&post("p"), &first).await.unwrap() else { panic!() };
    assert_eq!((counter.likes, counter.version), (1, 1), "the repetition met what the first copy did");
}

#[tokio::test(start_paused = true)]
async fn markers_and_verdicts_are_sent_once() {
    let (emulator, env) = env().await;
    let key = "p#0".parse().unwrap();
    let lost = |operation| vec![Rule::new(Injected::DropReply).on(operation)];
    emulator.set_faults(lost("PutItem"));
    let before = sent(&emulator, "PutItem");
    assert_eq!(env.markers.put_marker(&key, Marker::low(1.into()), None).await, Ok(MarkerPut::Unclear));
    assert_eq!(sent(&emulator, "PutItem"), before + 1);
    emulator.set_faults(vec![]);
    assert_eq!(env.markers.marker(&key).await, Ok(Some(Marker::low(1.into()))), "unclear, and it stands");

    let window = tally_core::counter::Touch { window: Some(7.into()), ..touch(0, 0) };
    env.counts.apply(&post("p"), &update(1, 1, 1, vec![window])).await.unwrap();
    emulator.set_faults(lost("TransactWriteItems"));
    let before = sent(&emulator, "TransactWriteItems");
    let verdict = Verdict { key, run: 7.into(), correction: 5, form: Form::Plain };
    assert_eq!(env.counts.judge(&verdict, &entry(&post("p"), 7.into(), 1)).await, Ok(Judged::Void));
    assert_eq!(sent(&emulator, "TransactWriteItems"), before + 1);
    emulator.set_faults(vec![]);
    assert_eq!(env.counts.counter(&post("p")).await.unwrap().unwrap().likes, 5, "void to its sender, and it stands");
    emulator.set_faults(vec![Rule::new(Injected::Throttle).on("TransactWriteItems")]);
    let throttled = env.counts.judge(&verdict, &entry(&post("p"), 7.into(), 1)).await;
    assert!(matches!(throttled, Err(Fault::Throttled(_))), "{throttled:?}");
    emulator.set_faults(vec![Rule::new(Injected::Conflict).on("TransactWriteItems")]);
    assert_eq!(env.counts.judge(&verdict, &entry(&post("p"), 7.into(), 1)).await, Ok(Judged::NotDone));
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
async fn keys_that_a_batch_left_out_are_asked_for_again() {
    let (emulator, env) = env().await;
    let posts: Vec<_> = (0..20).map(|n| post(&format!("p-{n}"))).collect();
    for post in &posts {
        env.counts.apply(post, &update(1, 1, 1, vec![touch(0, 1)])).await.unwrap();
    }
    emulator.set_faults(vec![Rule::new(Injected::Unprocessed).on("BatchGetItem").calls(1, 2)]);
    let found = env.counts.counters(&posts).await.unwrap();
    assert!(found.iter().all(|counter| matches!(counter, Ok(Some(counter)) if counter.likes == 1)));
    assert!(sent(&emulator, "BatchGetItem") >= 3);
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
