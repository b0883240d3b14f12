//! `tally recount`: command lines that it refuses, and recounts beside a change-streamer.

use std::time::Duration;

use serde_json::json;
use tally_core::audit::{AuditRun, RunRecord, RunScope, Summary};
use tally_core::ids::CounterId;
use tally_core::time::UnixMillis;
use tally_emulator::Config;
use tally_testkit::process::run;

use crate::changes::File;
use crate::stage::Stage;

const YES: [&str; 3] = ["--yes", "--why", "a test"];

#[tokio::test(flavor = "multi_thread")]
async fn posts_that_are_none_and_a_file_that_is_none_are_named() {
    let stage = Stage::set().await;
    let file = File::of("posts.txt", "a\n\nb\n\u{1}\n");
    let mistakes: [(&[&str], &str); 4] = [
        (&["recount"], "say which posts, by their ids or --file, or --all"),
        (&["recount", "p", "--all"], "cannot be used with"),
        (&["recount", "--all", "--counter", "likes"], "cannot be used with"),
        (&["recount", "--file", file.name()], ", line 4: "),
    ];
    for (line, why) in mistakes {
        let said = stage.tally(line).await;
        assert!(said.code == Some(2) && said.err.contains(why), "{line:?}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_says_at_once_that_it_waits_for_kafka_and_gives_up_in_the_end() {
    let stage = Stage::set().await;
    // It takes connections, and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = silent.local_addr().unwrap().to_string();
    let line = [&["recount", "d-0", "--patience", "1s"], &YES[..]].concat();
    let said = run(stage.command(&line).env("TALLY_BROKERS", &brokers)).await;
    assert_eq!(said.code, Some(69), "{said:?}");
    let waits = "tally: waiting for Kafka, to look at the topic `changes`: for up to 1s, which --patience sets\n";
    assert!(said.err.starts_with(waits) && said.err.contains("given up after 1s"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_was_edited_by_hand_is_shown_without_yes_and_right_with_it() {
    let stage = Stage::unfollowed(Config { shards: 2, ..Config::default() }).await;
    let streamer = stage.streamer();
    let id: CounterId = "p".parse().unwrap();
    for user in ["u", "v"] {
        stage.store().put("likes", &json!({"pk": "p#1", "user_id": user, "liked_at": 5})).await;
    }
    stage.counted(&id, 2).await;
    for attribute in ["likes", "s1"] {
        stage.store().edit("like_counts", json!({"post_id": {"S": "p"}}), attribute, json!({"N": "7"})).await;
    }

    let file = File::of("wrong.txt", "p\n");
    let dry = stage.tally(&["recount", "--file", file.name()]).await;
    assert_eq!(dry.code, Some(1), "{dry:?}");
    assert!(dry.out.contains("1 (drift 1)") && dry.out.contains("nothing was changed: say --yes"), "{dry:?}");
    stage.counted(&id, 7).await;
    let said = stage.tally(&[&["recount", "p"][..], &YES].concat()).await;
    assert!(said.code == Some(0) && said.out.contains("1 corrected"), "{said:?}");
    stage.counted(&id, 2).await;
    let ledger = stage.tally(&["ledger"]).await;
    assert!(ledger.out.contains("recount 1 posts") && ledger.out.contains("1 corrected"), "{ledger:?}");
    let again = stage.tally(&[&["recount", "--all"][..], &YES].concat()).await;
    assert!(again.code == Some(0) && again.out.contains("nothing differed"), "{again:?}");
    let verified = stage.tally(&["verify"]).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
    streamer.stop(Duration::from_secs(10)).await;
}

/// The record of another process's run that began later than ours and has ended.
fn others_run() -> RunRecord {
    let began = UnixMillis(4_000_000_000_000);
    let summary = Summary { corrected: 99, ..Summary::default() };
    let (run, scope) = (AuditRun::beginning(began, 1), RunScope::Audit);
    RunRecord { run, began, ended: Some(began), scope, dry_run: false, summary }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_answers_with_one_document_of_its_own_run() {
    let stage = Stage::unfollowed(Config { shards: 2, ..Config::default() }).await;
    let streamer = stage.streamer();
    stage.store().put("likes", &json!({"pk": "p#1", "user_id": "u", "liked_at": 5})).await;
    stage.counted(&"p".parse().unwrap(), 1).await;
    stage.recounts.put_run(&others_run()).await.unwrap();
    let dry = stage.tally(&["recount", "p", "-o", "json"]).await;
    let answer = dry.json();
    assert_eq!((&answer["dry_run"], &answer["summary"]["corrected"]), (&json!(true), &json!(0)), "{answer}");
    assert_eq!((dry.code, &answer["summary"]["counters"]), (Some(0), &json!(1)), "{answer}");
    let said = stage.tally(&[&["recount", "p", "-o", "json"][..], &YES].concat()).await;
    let answer = said.json();
    let outcome = answer["outcome"].as_str().unwrap();
    assert!(said.code == Some(0) && outcome.contains("nothing differed"), "{said:?}");
    streamer.stop(Duration::from_secs(10)).await;
}
