//! Tests `tally recount`, which compares counters with their rows and corrects them: the command lines that it refuses,
//! how it waits for Kafka, and recounts beside a change-streamer.

use std::time::Duration;

use serde_json::json;
use tally_core::audit::Summary;
use tally_core::ids::CounterId;
use tally_core::time::UnixMillis;
use tally_emulator::Config;
use tally_testkit::process::run;

use crate::changes::File;
use crate::stage::{Stage, audited, shown};

#[tokio::test(flavor = "multi_thread")]
async fn posts_that_are_none_and_a_file_that_is_none_are_named() {
    let stage = Stage::set().await;
    let file = File::of("posts.txt", "a\n\nb\n\u{1}\n");
    for (line, why) in [
        ("recount", "say which posts, by their ids or --file, or --all"),
        ("recount p --all", "cannot be used with"),
        ("recount --all --counter likes", "cannot be used with"),
        (&*format!("recount --file {}", file.name()), ", line 4: "),
    ] {
        stage.shows(line, 2, [why]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_says_at_once_that_it_waits_for_kafka_and_gives_up_in_the_end() {
    let stage = Stage::set().await;
    // It takes connections, and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = silent.local_addr().unwrap().to_string();
    let line = "recount d-0 --patience 1s --yes --why test";
    let said = run(stage.command(line).env("TALLY_BROKERS", &brokers)).await;
    shown(&said, 69, []);
    let waits = "tally: waiting for Kafka, to look at the topic `changes`: for up to 1s, which --patience sets\n";
    assert!(said.err.starts_with(waits) && said.err.contains("given up after 1s"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_was_edited_by_hand_is_shown_without_yes_and_right_with_it_and_an_answer_is_of_its_own_run() {
    let stage = Stage::unfollowed(Config { shards: 2, ..Config::default() }).await;
    let streamer = stage.streamer();
    let id: CounterId = "p".parse().unwrap();
    for user in ["u", "v"] {
        stage.row("p#1", user).await;
    }
    stage.counted(&id, 2).await;
    for attribute in ["likes", "s1"] {
        stage.store().edit("like_counts", json!({"post_id": {"S": "p"}}), attribute, json!({"N": "7"})).await;
    }

    let file = File::of("wrong.txt", "p\n");
    stage.shows(&format!("recount --file {}", file.name()), 1, ["1 (drift 1)", "nothing was changed: say --yes"]).await;
    stage.counted(&id, 7).await;
    stage.does("recount p", 0, ["1 corrected"]).await;
    stage.counted(&id, 2).await;
    stage.shows("ledger", 0, ["recount 1 posts", "1 corrected"]).await;
    stage.does("recount --all", 0, ["nothing differed"]).await;
    stage.shows("verify", 0, []).await;

    // The run of another process began later than those that follow.
    let others = audited(UnixMillis(4_000_000_000_000), Summary { corrected: 99, ..Summary::default() });
    stage.recounts.put_run(&others).await.unwrap();
    let dry = stage.shows("recount p -o json", 0, []).await.json();
    assert_eq!((&dry["dry_run"], &dry["summary"]["corrected"]), (&json!(true), &json!(0)), "{dry}");
    assert_eq!(dry["summary"]["counters"], 1, "{dry}");
    let done = stage.does("recount p -o json", 0, []).await.json();
    assert!(done["outcome"].as_str().unwrap().contains("nothing differed"), "{done}");
    streamer.stop(Duration::from_secs(10)).await;
}
