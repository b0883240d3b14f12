//! Tests of recounts from their command lines to their exit codes: audits, dry runs, named counters, and what is
//! queued. They run over the emulated tables and the log of `world.rs`.

use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::Checkpoints;
use tally_batch_recount::{Args, Rules};
use tally_core::audit::QueueReason;
use tally_core::audit::{Cause, RunScope};
use tally_core::definitions::Definitions;
use tally_core::ids::{CounterId, CounterKind, CounterName, RowKey};
use tally_emulator::{Fault, Rule};
use tally_service::{Arguments as _, Exit, Listen, Running};
use tally_testkit::{definitions, post, set, user};

use crate::started::ended;
use crate::world::{GONE, World, key, keys, shards};

pub(crate) fn views() -> CounterId {
    CounterId { name: CounterName::new("views", CounterKind::Sum).unwrap(), ..post(0) }
}

#[test]
fn only_a_recount_that_watches_opens_the_admin_listener() {
    let opens = |line: &[&str]| {
        let args = Args::checked(&[&["--brokers", "b:1"], line].concat()).unwrap();
        matches!(args.admin_listen(), Listen::At(_))
    };
    assert!(opens(&["--watch"]) && !opens(&[]));
}

#[tokio::test(start_paused = true)]
async fn an_audit_ends_clean_writes_down_what_it_corrected_and_a_second_one_finds_nothing() {
    let world = World::filled(3, 20).await;
    let drifting = [key(&post(0), &user(1)), key(&post(1), &user(2))];
    world.drift(&drifting[0], 5).await;
    world.drift(&drifting[1], -3).await;
    let parts = world.counter(&post(2)).await.unwrap().likes;
    world.edit(&post(2), "likes", Some(parts + 9)).await;
    world.ports().recounts.enqueue_audit(world.clock.now()).await.unwrap();
    world.open_loss("replay").await;
    assert_eq!(world.run(&[]).await, Exit::CLEAN);
    world.exact(3).await;
    assert_eq!((world.open_losses().await, world.ports().recounts.audit_queued().await), (vec![], Ok(None)));
    let found = world.latest().await;
    assert_eq!((found.scope, found.ended.is_some(), found.dry_run), (RunScope::Audit, true, false));
    assert_eq!((found.summary.drift, found.summary.left), ([(Cause::Drift, 2), (Cause::Total, 1)].into(), 0));
    let ledger = |counter| {
        let recounts = world.ports().recounts;
        async move { recounts.ledger(&counter, 9).await.unwrap() }
    };
    for (drifting, by) in drifting.iter().zip([5, -3]) {
        let [line] = &ledger(drifting.counter.clone()).await[..] else { panic!("one line") };
        assert_eq!((line.shard, line.before - line.after, line.why.as_str()), (Some(drifting.shard), by, "drift"));
        assert_eq!(line.run.to_string(), found.run.to_string());
    }
    let [line] = &ledger(post(2)).await[..] else { panic!("one line") };
    assert_eq!((line.shard, line.before, line.after, line.why.as_str()), (None, parts + 9, parts, "total"));
    assert_eq!(world.run(&[]).await, Exit::CLEAN);
    assert_eq!(world.latest().await.summary.found(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_by_its_exit_code_that_something_differs_and_writes_nothing() {
    let world = World::filled(2, 10).await;
    assert_eq!(world.run(&["--dry-run"]).await, Exit::CLEAN);
    let drifting = key(&post(0), &user(1));
    world.drift(&drifting, 5).await;
    world.ports().recounts.enqueue(&drifting, QueueReason::Asked, world.clock.now()).await.unwrap();
    let loss = world.open_loss("replay").await;
    world.quiet().await;
    let (rows, counters) = (world.store.items("likes").await.len(), world.stored().await);
    for line in [&["--dry-run"][..], &["--dry-run", "--candidates-only"], &["--dry-run", "--post", "p-0"]] {
        assert_eq!(world.run(line).await, Exit::FAILED, "{line:?}");
        assert_eq!(world.latest().await.summary.drift, [(Cause::Drift, 1)].into());
    }
    assert_eq!((world.store.items("likes").await.len(), world.stored().await), (rows, counters));
    assert_eq!(world.open_losses().await, [loss]);
    assert_eq!((world.queued().await, world.ports().recounts.ledger(&post(0), 9).await), (vec![drifting], Ok(vec![])));
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_since_is_looked_at_on_request() {
    let world = World::filled(2, 10).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.put(&post(1), &user(50), true).await;
    world.quiet().await;
    for n in [0, 1] {
        world.drift(&key(&post(n), &user(1)), 4).await;
    }
    assert_eq!(world.run(&["--since", "1m"]).await, Exit::CLEAN);
    assert_eq!(world.latest().await.summary.counters, 1);
    assert!(world.difference(&post(0)).await.is_some());
    assert_eq!(world.difference(&post(1)).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_settled_and_leaves_the_queue_and_what_never_was_is_made_no_counter_of() {
    let world = World::filled(2, 10).await;
    world.drift(&key(&post(0), &user(1)), 4).await;
    let recounts = world.ports().recounts;
    for key in keys(&post(0)).into_iter().chain(keys(&post(77))) {
        recounts.enqueue(&key, QueueReason::Asked, world.clock.now()).await.unwrap();
    }
    let rows = world.store.items("likes").await.len();
    assert_eq!(world.run(&["--candidates-only"]).await, Exit::CLEAN);
    assert_eq!((world.queued().await, world.counter(&post(77)).await), (vec![], None));
    assert_eq!(world.store.items("likes").await.len(), rows + 4, "markers of the post that is there");
    world.exact(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_like_behind_tombstones_is_found_and_tombstones_alone_are_nothing_to_count() {
    let world = World::start().await;
    let last = user("z");
    let liked = key(&post(0), &last);
    for nth in 0..1_400 {
        world.put_row(&liked, &format!("a-{nth}"), ("gone", json!({"N": GONE.to_string()}))).await;
    }
    world.put(&post(0), &last, true).await;
    world.put(&post(1), &last, false).await;
    world.exact(2).await;
    assert_eq!(world.counter(&post(1)).await, None, "its relay sent nothing");
    world.delete(&post(0)).await;
    world.lose().await;
    let rows = world.store.items("likes").await.len();
    assert_eq!(world.run(&["--post", "p-0", "--post", "p-1"]).await, Exit::CLEAN);
    assert_eq!((world.latest().await.summary.corrected, world.counter(&post(0)).await.unwrap().likes), (1, 1));
    assert_eq!(world.store.items("likes").await.len(), rows + 1, "a marker where there is something to count");
    assert_eq!(world.run(&[]).await, Exit::CLEAN);
    world.exact(2).await;
    assert_eq!(world.counter(&post(1)).await, None, "an audit makes no counter of tombstones");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_queued_until_it_is_settled() {
    let world = World::filled(1, 10).await;
    let large = key(&post(0), &user(1));
    world.drift(&large, 5_000).await;
    assert_eq!(world.run(&["--post", "p-0"]).await, Exit::FAILED);
    assert_eq!((world.queued().await, world.latest().await.summary.withheld), (vec![large.clone()], 1));
    assert!(world.counter(&post(0)).await.unwrap().doubt.contains(&large.shard), "it is not called exact meanwhile");
    assert_eq!(world.run(&["--candidates-only"]).await, Exit::FAILED);
    assert_eq!(world.queued().await, [large]);
    assert_eq!(world.run(&["--candidates-only", "--force"]).await, Exit::CLEAN);
    assert_eq!(world.queued().await, []);
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_recount_by_names_looks_at_those_counters_of_the_post_alone() {
    let world = World::start().await;
    let checkpoints = Checkpoints::new(&world.store.connection);
    assert_eq!(checkpoints.define(&Definitions::likes_alone(), &definitions()).await, Ok(true));
    let cell = RowKey { counter: views(), shard: shards().shard_of_cell(0) };
    world.put_row(&cell, "\u{1}cell/likes/0", ("n", json!({"N": "40"}))).await;
    for u in 0..7 {
        world.put(&post(0), &user(u), true).await;
        world.put(&set("retweets"), &user(u), true).await;
    }
    world.quiet().await;
    let all = [key(&post(0), &user(0)), key(&set("retweets"), &user(0)), cell];
    let wrong = async || {
        for key in &all {
            world.drift(key, 5).await;
        }
    };
    let differ = async || {
        let mut differ = Vec::new();
        for key in &all {
            differ.push(world.difference(&key.counter).await.is_some());
        }
        differ
    };
    wrong().await;
    assert_eq!(world.run(&["--post", "p-0", "--counter", "views"]).await, Exit::CLEAN);
    assert_eq!((differ().await, world.latest().await.summary.counters), (vec![true, true, false], 1));
    let names = ["--post", "p-0", "--counter", "retweets", "--counter", "likes"];
    assert_eq!(world.run(&names).await, Exit::CLEAN);
    assert_eq!((differ().await, world.latest().await.summary.counters), (vec![false; 3], 2));
    wrong().await;
    assert_eq!(world.run(&["--post", "p-0"]).await, Exit::CLEAN);
    assert_eq!(
        (differ().await, world.latest().await.summary.corrected),
        (vec![false; 3], 3),
        "all, where none is named"
    );
    let end = world.launch(&["--post", "p-0", "--counter", "nope"]).ended().await;
    assert!(end.to_string().ends_with("there is no counter nope"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn an_audit_of_more_than_there_is_room_for_goes_in_parts_and_a_dead_one_is_continued_by_another_process() {
    let world = World::filled(12, 8).await;
    for n in 0..12 {
        world.drift(&key(&post(n), &user(n % 8)), 6).await;
    }
    world.open_loss("replay").await;
    let small = |rules: &mut Rules| rules.held = 10;
    let corrected = async || {
        let runs = world.ports().recounts.runs(1).await.unwrap();
        runs.first().map_or(0, |run| run.summary.corrected)
    };
    let dead = world.launch_with(&[], small);
    world.eventually("some are corrected", async || corrected().await > 0).await;
    dead.kill().await;
    let (run, before) = (world.latest().await.run, corrected().await);
    assert!(before < 12, "it was killed in time");
    // The audit does not close a loss that was opened while it was dead.
    let later = world.open_loss("replay").await;
    world.quiet().await;
    let line = ["--resume", &run.to_string()];
    let refused = world.launch(&[&line[..], &["--dry-run"]].concat()).ended().await;
    assert!(refused.to_string().ends_with("it cannot be continued with --dry-run"), "{refused}");
    let resumed: Running = world.launch_with(&line, small);
    assert_eq!(world.beside(ended(resumed)).await, Exit::CLEAN);
    let latest = world.latest().await;
    assert_eq!((latest.run, latest.ended.is_some()), (run, true));
    let summary = latest.summary;
    assert!((12..=13).contains(&summary.corrected) && summary.alarms == 0, "what both have found: {summary:?}");
    assert_eq!(world.open_losses().await, [later]);
    world.exact(12).await;
    let over = world.launch(&line).ended().await;
    assert!(over.to_string().ends_with("is over"), "{over}");
}

#[tokio::test(start_paused = true)]
async fn a_recount_waits_for_the_deployment_and_the_log_and_decides_nothing_about_them() {
    let world = World::start().await;
    let id = |id: &str| json!({"id": {"S": id}});
    let taken = async |what: &str| {
        let item = world.store.item("checkpoints", id(what)).await;
        world.store.call("DeleteItem", json!({"TableName": "checkpoints", "Key": id(what)})).await;
        item
    };
    let (config, log) = (taken("config").await, taken("changes/config").await);
    let recount = world.launch(&[]);
    for item in [config, log] {
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(world.ports().recounts.runs(1).await.unwrap(), []);
        world.store.call("PutItem", json!({"TableName": "checkpoints", "Item": item})).await;
    }
    world.fill(1, 8).await;
    assert_eq!(world.beside(ended(recount)).await, Exit::CLEAN);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_stands_elsewhere_is_reported_and_counts_where_it_stands() {
    let world = World::filled(1, 8).await;
    let home = key(&post(0), &user(90));
    let elsewhere = keys(&post(0)).into_iter().find(|key| *key != home).unwrap();
    world.put_row(&elsewhere, "u-90", ("v", json!({"N": "1"}))).await;
    world.quiet().await;
    assert_eq!(world.run(&[]).await, Exit::CLEAN);
    let summary = world.latest().await.summary;
    assert_eq!((summary.misplaced_rows, summary.found()), (1, 0));
    assert_eq!(summary.misplaced, [format!("{:?} in {:?}", "u-90", elsewhere.to_string())]);
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_cannot_be_read_is_left_with_the_losses_and_everything_else_is_corrected() {
    let world = World::filled(3, 10).await;
    let loss = world.open_loss("replay").await;
    world.drift(&key(&post(1), &user(1)), 4).await;
    world.store.edit("like_counts", json!({"post_id": {"S": post(0).stored()}}), "version", Value::Null).await;
    assert_eq!(world.run(&[]).await, Exit::FAILED);
    assert!(world.latest().await.summary.left >= 1);
    assert_eq!((world.difference(&post(1)).await, world.open_losses().await), (None, vec![loss]));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_store_is_gone_gives_up_by_name_and_a_process_that_watches_does_not() {
    let world = World::filled(3, 10).await;
    for (operation, named) in [("Scan", "likes"), ("DescribeTable", "use tables")] {
        world.store.faults([Rule::new(Fault::InternalError { applied: None }).on(operation).table("likes")]);
        let host = world.host("recount").giving_up_after(Some(Duration::from_secs(60)));
        let end = world.beside(Running::start(world.app(&[], |_| ()), host).ended()).await;
        assert_eq!(end.exit(), Exit::UNAVAILABLE, "{end}");
        let said = end.to_string();
        assert!(said.contains(named) && said.contains("given up after 60s, which --patience sets"), "{said}");
    }
    let patience = |line: &[&str]| Args::checked(&[&["--brokers", "b:1"], line].concat()).unwrap().patience();
    assert_eq!((patience(&[]), patience(&["--watch"])), (Some(Duration::from_secs(300)), None));
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_delay_a_recount_and_do_not_mislead_it() {
    let world = World::filled(4, 12).await;
    for n in 0..4 {
        world.drift(&key(&post(n), &user(1)), 3).await;
    }
    // Requests that a recount makes, and the relay and the folds of this world do not.
    let strikes = [
        ("Query", "likes"),
        ("Scan", "likes"),
        ("BatchWriteItem", "likes"),
        ("Scan", "like_counts"),
        ("PutItem", "recounts"),
        ("BatchWriteItem", "recounts"),
    ];
    let faults = [Fault::Throttle, Fault::InternalError { applied: None }, Fault::DropReply];
    let rules = strikes
        .iter()
        .flat_map(|(operation, table)| faults.map(|fault| Rule::new(fault).on(operation).table(table).chance(0.1)));
    world.store.faults(rules);
    assert_eq!(world.run(&[]).await, Exit::CLEAN);
    world.store.faults([]);
    world.exact(4).await;
}
