//! Tests `tally post show`, each reason that its `--explain` gives for a number that is not exact or not fresh, and
//! `tally post recount`; and `tally draw verify` where no record is stored.

use std::time::Duration;

use serde_json::json;
use tally_core::audit::{Cause, Drift, QueueReason, Summary};
use tally_core::changes::Standing;

use crate::stage::{Said, Stage, audited};

async fn explained(stage: &Stage, id: &str) -> (Said, Vec<String>) {
    let said = stage.tally(&format!("post show {id} --explain --fresh-within 2m -o json")).await;
    let likes = said.json()["counters"][0].clone();
    assert_eq!(likes["counter"], "likes");
    let why = likes["why"].as_array().unwrap().iter().map(|why| why["reason"].as_str().unwrap().to_owned());
    (said, why.collect())
}

async fn doubtful(stage: &Stage, id: &str) {
    let item = json!({"post_id": id, "likes": 2, "version": 3, "s1": 2, "doubt": [1]});
    stage.store().put("like_counts", &item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_number_needs_no_explanation() {
    let stage = Stage::set().await;
    stage.count("p", 5, &[("s0", 2), ("s3", 3)]).await;
    for id in ["p", "never-liked"] {
        let (said, why) = explained(&stage, id).await;
        assert_eq!((said.code, why), (Some(0), vec![]), "{said:?}");
    }
    stage.shows("post show p --fresh-within 2m", 0, ["likes    5      yes    yes    3        2       0"]).await;
    let said = stage.tally("post show p --fresh-within 2m -o json").await.json();
    let likes = &said["counters"][0];
    assert!(likes["fresh"] == true && likes["as_of"].is_u64() && said["partition"].is_u64(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_reasons_is_said() {
    let stage = Stage::set().await;
    stage.count("negative", -1, &[("s0", -3), ("s1", 2)]).await;
    doubtful(&stage, "doubt").await;
    doubtful(&stage, "quarantined").await;
    stage.store().put("likes", &json!({"pk": "quarantined#1", "user_id": "u", "n": "many"})).await;
    stage.count("total", 5, &[("s0", 2)]).await;
    stage.store().put("like_counts", &json!({"post_id": "damaged", "likes": "many"})).await;
    stage.store().put("like_counts", &json!({"post_id": "behind", "likes": 0, "version": 3, "gap": 8})).await;
    stage.count("withheld", 5_000, &[("s2", 5_000)]).await;
    let drift = Drift { key: "withheld#2".to_owned(), before: 5_000, after: 2, cause: Cause::Drift };
    let summary = Summary { withheld: 1, examples: vec![drift], ..Summary::default() };
    stage.recounts.put_run(&audited(stage.clock.now(), summary)).await.unwrap();
    for id in ["negative", "doubt", "quarantined", "total", "damaged", "behind", "withheld"] {
        let (said, why) = explained(&stage, id).await;
        let kind = if id == "quarantined" { "quarantine" } else { id };
        assert_eq!((said.code, why), (Some(1), vec![kind.to_owned()]), "{said:?}");
        let why = format!("likes: {kind}: ");
        stage.shows(&format!("post show {id} --explain --fresh-within 2m"), 1, [&*why]).await;
    }
    stage.lose("trimmed", "shardId-7").await;
    let (said, why) = explained(&stage, "never-liked").await;
    assert_eq!((said.code, why), (Some(1), vec!["loss".to_owned()]), "{said:?}");
    assert_eq!(said.json()["counters"][0]["why"][0]["detail"], "shardId-7");
    stage.shows("post show never-liked", 1, ["likes is not exact: --explain says why"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_may_miss_changes_is_not_fresh_and_an_absent_one_of_another_table_is_not_exact() {
    let stage = Stage::set().await;
    let late = ["likes: late: partition ", "likes    0      yes    no"];
    stage.shows("post show p --fresh-within 1ms --explain", 1, late).await;
    stage.shows("post show p --fresh-within 1ms", 1, ["likes is not fresh: --explain says why"]).await;
    stage.delete_all("like_counts", "post_id").await;
    let (said, why) = explained(&stage, "p").await;
    assert_eq!((said.code, why), (Some(1), vec!["lost".to_owned()]), "{said:?}");
    assert_eq!(said.json()["counters"][0]["exact"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_no_fresher_than_the_rows_it_counts_and_not_exact_where_nothing_is_known_of_them() {
    let stage = Stage::set().await;
    for index in 0..2 {
        stage.come_to(index, 0, stage.clock.now().minus(Duration::from_secs(300))).await;
    }
    let later = stage.clock.now().plus(Duration::from_secs(1));
    for partition in 0..2 {
        stage.stand(partition, 1, Standing { as_of: Some(later), ..Standing::default() }).await;
    }
    let (said, why) = explained(&stage, "p").await;
    assert_eq!((said.code, why), (Some(1), vec!["rows".to_owned()]), "{said:?}");
    let likes = &said.json()["counters"][0];
    assert!(likes["fresh"] == false && likes["exact"] == true, "{said:?}");
    for key in ["claim/likes/0", "claim/likes/1"] {
        stage.store().delete("checkpoints", &json!({"id": key})).await;
    }
    let (said, why) = explained(&stage, "p").await;
    assert_eq!((said.code, why), (Some(1), vec!["unknown".to_owned()]), "{said:?}");
    assert_eq!(said.json()["counters"][0]["exact"], false);
    stage.store().delete("checkpoints", &json!({"id": "topic/likes"})).await;
    let (said, _) = explained(&stage, "p").await;
    let likes = &said.json()["counters"][0];
    assert!(likes["fresh"] == false && likes["as_of"].is_null(), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_is_queued_for_each_row_key_and_shown_with_the_post() {
    let stage = Stage::set().await;
    stage.count("p", 5, &[("s0", 2), ("s3", 3)]).await;
    stage.does("post recount p", 0, []).await;
    let queued = stage.recounts.queued(None).await.unwrap().items;
    assert_eq!(queued.iter().map(|queued| queued.key.to_string()).collect::<Vec<_>>(), ["p#0", "p#1", "p#2", "p#3"]);
    assert!(queued.iter().all(|queued| queued.reason == QueueReason::Asked));
    let shown = stage.tally("post show p").await;
    assert!(shown.out.contains("likes is queued for a recount (asked; 4 row keys)"), "{shown:?}");
    let unknown = stage.shows("post recount p --counter views", 2, []).await;
    assert_eq!(unknown.err, "tally: there is no counter views: see tally counters list\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_without_a_record_is_false_and_a_counter_that_is_none_is_named() {
    let stage = Stage::set().await;
    stage.shows("draw verify p likes 10", 1, ["false: p has no record of 10"]).await;
    stage.shows("draw verify p nothing 10 -o json", 78, ["\"nothing\" is no counter"]).await;
}
