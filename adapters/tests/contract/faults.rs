//! Tests the DynamoDB adapter over an emulator that throttles, is slow, breaks connections, and leaves items out: how
//! long the adapter waits, how often it tries again, and what it then returns.

use std::collections::BTreeSet;
use std::time::Duration;

use tally_adapters::dynamodb::Settings;
use tally_core::definitions::Direction;
use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::Store;
use tokio::time::Instant;

use crate::engine::{Env, in_process, shards};
use crate::likes::{post, user, write};

#[tokio::test(start_paused = true)]
async fn an_attempt_times_out_in_paused_time_as_well() {
    let store = Store::start().await;
    let env = Env::dynamodb(&store.connection).await;
    store.faults([Rule::new(Injected::Latency { min_ms: 60_000, max_ms: 60_000 }).on("GetItem")]);
    let began = Instant::now();
    let outcome = env.rows.like(&"p#0".parse().unwrap(), &user("u")).await;
    assert!(matches!(outcome, Err(Fault::Transient(_))), "{outcome:?}");
    assert_eq!(began.elapsed(), Settings::default().attempt_timeout);
}

#[tokio::test(start_paused = true)]
async fn unprocessed_rows_are_requested_again_with_pauses_for_a_while() {
    let (store, env) = in_process().await;
    let member = user("u");
    let pairs: Vec<_> = (0..90).map(|n| (post(&format!("p-{n}")), member.clone())).collect();
    write(&env, Direction::Add, &pairs, 1).await;
    let keys: Vec<_> = pairs.iter().map(|(post, user)| RowKey::of(post, user, shards())).collect();

    store.faults([Rule::new(Injected::Unprocessed).on("BatchGetItem").calls(1, 3)]);
    let began = Instant::now();
    assert_eq!(env.rows.present(&keys, &member).await, Ok(vec![true; keys.len()]));
    assert!(began.elapsed() > Duration::ZERO, "it waited");

    store.faults([Rule::new(Injected::Unprocessed).on("BatchGetItem")]);
    let (mut whole, mut given_up, mut waits) = (0, 0, BTreeSet::new());
    for _ in 0..40 {
        let (began, asked) = (Instant::now(), store.requests("BatchGetItem"));
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
                assert_eq!(store.requests("BatchGetItem") - asked, 8);
                given_up += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_millis(3_200), "{:?}", began.elapsed());
        waits.insert(began.elapsed());
    }
    assert!(whole > 0 && given_up > 0, "{whole} read whole, {given_up} given up");
    assert!(waits.len() > 20, "no two wait alike: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transient_fault_is_retried_as_often_as_configured_and_a_refusal_is_not() {
    let (store, env) = in_process().await;
    let attempts = u64::from(Settings::default().attempts);
    let key = "p#0".parse().unwrap();
    let read = async |fault: Option<Injected>| {
        store.faults(fault.map(|fault| Rule::new(fault).on("GetItem")));
        let before = store.requests("GetItem");
        let class = env.rows.like(&key, &user("u")).await.map_err(|fault| fault.class());
        (class, store.requests("GetItem") - before)
    };
    assert!(attempts > 1);
    assert_eq!(read(None).await, (Ok(None), 1));
    assert_eq!(read(Some(Injected::Throttle)).await, (Err("throttled"), attempts));
    for fault in [Injected::Outage, Injected::DropReply, Injected::InternalError { applied: Some(false) }] {
        assert_eq!(read(Some(fault)).await, (Err("transient"), attempts), "{fault:?}");
    }
}
