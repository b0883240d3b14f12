//! What the adapter makes of an engine that throttles, breaks connections, and leaves items out.

use std::collections::BTreeSet;
use std::time::Duration;

use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::definitions::Direction;
use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_emulator::{Emulator, Fault as Injected, Rule};
use tokio::time::Instant;

use crate::engine::{BEGAN, Env, in_process, shards};
use crate::likes::{post, user, write};

async fn env() -> (Emulator, Env) {
    let (emulator, connection) = in_process();
    let env = Env::dynamodb(&connection).await;
    (emulator, env)
}

fn sent(emulator: &Emulator, operation: &str) -> u64 {
    emulator.stats().requests.get(operation).copied().unwrap_or(0)
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
    let outcome = env.rows.like(&"p#0".parse().unwrap(), &user("u")).await;
    assert!(matches!(outcome, Err(Fault::Transient(_))), "{outcome:?}");
    assert_eq!(began.elapsed(), settings.attempt_timeout);
}

#[tokio::test(start_paused = true)]
async fn rows_that_a_batch_left_out_are_asked_for_again_after_a_wait_and_for_a_while() {
    let (emulator, env) = env().await;
    let member = user("u");
    let pairs: Vec<_> = (0..90).map(|n| (post(&format!("p-{n}")), member.clone())).collect();
    write(&env, Direction::Add, &pairs, 1).await;
    let keys: Vec<_> = pairs.iter().map(|(post, user)| RowKey::of(post, user, shards())).collect();

    let left_out = |rule: Rule| vec![rule.on("BatchGetItem")];
    emulator.set_faults(left_out(Rule::new(Injected::Unprocessed).calls(1, 3)));
    let began = Instant::now();
    assert_eq!(env.rows.present(&keys, &member).await, Ok(vec![true; keys.len()]));
    assert!(began.elapsed() > Duration::ZERO, "it waited");

    emulator.set_faults(left_out(Rule::new(Injected::Unprocessed)));
    let (mut whole, mut given_up, mut waits) = (0, 0, BTreeSet::new());
    for _ in 0..40 {
        let (began, asked) = (Instant::now(), sent(&emulator, "BatchGetItem"));
        match env.rows.present(&keys, &member).await {
            Ok(found) => {
                assert_eq!(found, vec![true; keys.len()]);
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
}
