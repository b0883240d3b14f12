//! `tally topic adopt --topic`: moves the counters whose definition names no topic to another topic.

use serde_json::json;
use tally_emulator::{Fault, Rule};

use crate::changes::File;
use crate::stage::{PARTITIONS, Stage};

const ADOPT: &str = "topic adopt --topic moved --settle 0s";

#[tokio::test(flavor = "multi_thread")]
async fn no_verb_produces_to_the_topic_that_consumers_have_left_nor_looks_at_it_for_a_certain_answer() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    stage.row("p#2", "u").await;
    let file = File::of("moved.ndjson", "{\"post_id\":\"p\",\"user_id\":\"u\",\"action\":\"like\"}\n");
    stage.does("pause consumer --settle 0s", 0, []).await;
    let seen = stage.checkpoints.usual().await.unwrap();
    assert!(stage.checkpoints.move_usual(&seen, "moved").await.unwrap());
    let before = stage.everything().await;
    for line in [
        "user erase u --yes --why test",
        "post erase p --yes --why test",
        &format!("import {} --yes --why test", file.name()),
        "dlq replay --yes --why test",
        "pause consumer --settle 0s --yes --why test",
        "verify",
    ] {
        let said = stage.shows(line, 2, ["`moved`", "say --topic moved"]).await;
        assert_eq!(said.out, "", "{line}: {said:?}");
    }
    assert_eq!(stage.everything().await, before);
    let said = stage.tally("verify --topic moved --looks 1 --pause 10ms -o json").await;
    assert_eq!(said.json()["claim"], json!("rows_moved"), "consumers of `moved` are not paused: {said:?}");
    stage.does(&format!("import {} --topic moved", file.name()), 0, ["to `moved`"]).await;
}

/// Cuts an adoption off at one write after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_the_topic_before_has_lost_its_claim_once_another_topic_is_named() {
    for first in 1.. {
        let stage = Stage::set().await;
        let claims = async || stage.claims.all("likes", PARTITIONS).await.unwrap().into_iter().map(|claim| claim.n);
        let before: Vec<u64> = claims().await.collect();
        let cut = Rule::new(Fault::Outage).on("UpdateItem").table("checkpoints").calls(first, 1_000);
        stage.store().faults([cut]);
        let said = stage.made(ADOPT).await;
        stage.store().faults([]);
        if stage.checkpoints.usual().await.unwrap().topic.as_deref() == Some("moved") {
            let now: Vec<u64> = claims().await.collect();
            assert!(now.iter().zip(&before).all(|(now, before)| now > before), "cut at {first}: {now:?}, {said:?}");
            assert!(stage.topic().await.is_paused, "cut at {first}: {said:?}");
        }
        if said.code == Some(0) {
            return;
        }
        stage.does(ADOPT, 0, []).await;
        assert_eq!(stage.checkpoints.usual().await.unwrap().topic.as_deref(), Some("moved"));
    }
}
