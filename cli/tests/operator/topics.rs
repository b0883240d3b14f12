//! Tests `tally topic`: what `show` says about the partitions of a topic of events, and how `adopt` and `skip` have
//! consumers go on where they have stopped.

use std::time::Duration;

use serde_json::json;
use tally_core::ports::TopicReader;
use tally_core::register::{Generation, LastRead, Standstill, Topic, Version};
use tally_core::topic::{Offset, Partition, TopicId};
use tally_emulator::{Fault, Rule};

use crate::changes::File;
use crate::stage::{PARTITIONS, Stage, VIEWS, partition, refused, version};

const ADOPT: &str = "topic adopt --topic moved --settle 0s";

async fn records(stage: &Stage, index: i32, count: u32) {
    for _ in 0..count {
        stage.say("likes", index, b"{}", &[], Duration::ZERO).await;
    }
}

/// Returns the kinds of the losses that are open.
async fn losses(stage: &Stage) -> Vec<String> {
    stage.changes.losses().await.unwrap().open().map(|(_, loss)| loss.kind.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_is_shown_with_how_far_it_has_come_and_what_waits() {
    let stage = Stage::set().await;
    records(&stage, 0, 3).await;
    stage.come_to(0, 2, stage.clock.now().minus(Duration::from_secs(300))).await;
    stage.consumers().mark(&partition(0), Offset(1)).await.unwrap();
    let said = stage.shows("topic show -o json", 0, []).await;
    let found = said.json();
    let line = |index: usize, what: &str| found["partitions"][index][what].clone();
    let of =
        |index| ["claim", "committed", "safe", "log_end", "lag", "state"].map(|what| line(index, what).to_string());
    // What the group has not committed is read again.
    assert_eq!(of(0), ["2", "1", "2", "3", "2", "\"reads\""], "{said:?}");
    assert_eq!(of(1), ["1", "null", "0", "0", "0", "\"reads\""], "{said:?}");
    stage.shows("topic show", 0, ["generation 1, group tally-consumer", "5 min ago"]).await;
    stage.shows("topic show --topic changes", 2, ["`changes` is the log of changes: see tally status"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_first_with_what_to_do() {
    let stage = Stage::set().await;
    records(&stage, 0, 3).await;
    stage.consumers().mark(&partition(0), Offset(2)).await.unwrap();
    stage.come_to(1, 7, stage.clock.now()).await;
    stage.know(|topic| topic.is_paused = true).await;
    let said = stage.tally("topic show").await;
    let first: Vec<&str> = said.out.lines().collect();
    assert!(first[0].starts_with("partition 0: forward_reset: ") && first[0].contains("topic skip --to 2"), "{said:?}");
    assert!(first[1].starts_with("partition 1: beyond_log: ") && first[1].contains("topic skip --to 0"), "{said:?}");
    assert_eq!((said.code, first[2]), (Some(1), "paused: tally resume consumer"), "{said:?}");
    assert!(first[3].starts_with("rows may still change until the command"), "no pause has waited: {said:?}");
    stage.know(|topic| topic.id = TopicId("before".into())).await;
    let said = stage.tally("topic show").await;
    assert!(said.out.starts_with("partition 0-1: topic_replaced: ") && said.out.contains("topic adopt"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_created_anew_is_read_from_its_start_in_the_next_generation() {
    let stage = Stage::set().await;
    let file = File::of("views.toml", VIEWS);
    stage.does(&format!("counters apply {}", file.name()), 0, []).await;
    stage.shows("topic adopt", 0, ["nothing to do"]).await;
    records(&stage, 0, 3).await;
    stage.come_to(1, 40, stage.clock.now()).await;
    stage.consumers().mark(&partition(1), Offset(40)).await.unwrap();
    stage.know(|topic| topic.id = TopicId("before".into())).await;
    for index in 0..2 {
        stage.keep(index, None, |kept| kept.topic = TopicId("before".into())).await;
    }
    refused(&stage.tally("topic adopt").await, "say `--sums skip`");
    let before = stage.everything().await;
    // A topic that waits to be adopted is something wrong.
    let plan = ["begin generation 2 at its start: 3 records are read", "leave out what adds to sums"];
    stage.shows("topic adopt --sums skip", 1, [plan[0], plan[1], "nothing was changed"]).await;
    assert_eq!(stage.everything().await, before);

    stage.does("topic adopt --sums skip --settle 0s", 0, []).await;
    let expected = Generation { number: 2, begins: vec![Offset(0); 2] };
    let Topic { id, generations, sums_from, is_paused } = stage.topic().await;
    assert_eq!((id != TopicId("before".into()), generations, is_paused), (true, vec![expected], false));
    assert_eq!(sums_from, [Offset(3), Offset(0)]);
    assert_eq!(stage.consumers().bookmark(&partition(1)).await, Ok(Some(Offset(0))), "no forward reset");
    let kept = stage.kept(0).await;
    assert_eq!((kept.topic, kept.safe, kept.greatest, kept.safe_at), (id, Offset(0), Offset(3), None));
    assert_eq!(losses(&stage).await, ["topic_adopted"]);
    stage.shows("topic show", 0, ["replays up to 3"]).await;
    stage.does("topic adopt --settle 0s", 0, ["nothing to do"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lost_its_tail_and_has_grown_again_goes_on_in_a_new_generation() {
    let stage = Stage::set().await;
    records(&stage, 0, 5).await;
    stage.come_to(0, 4, stage.clock.now()).await;
    let another = LastRead { at: Offset(3), fingerprint: 1 };
    stage.keep(0, None, |kept| kept.last = Some(another)).await;
    let said = stage.tally("topic show").await;
    assert!(said.out.starts_with("partition 0: beyond_log: another record is at 3 than the one"), "{said:?}");
    stage.does("topic skip --partition 0 --to 2 --settle 0s", 0, []).await;
    assert_eq!(stage.topic().await.current(), &Generation { number: 2, begins: vec![Offset(2), Offset(0)] });
    assert_eq!(losses(&stage).await, ["skipped"]);
    // Consumers go on.
    stage.shows("topic show", 0, []).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_has_grown_is_adopted_once_it_is_drained() {
    let stage = Stage::set().await;
    records(&stage, 0, 3).await;
    records(&stage, 1, 2).await;
    stage.know(|topic| _ = topic.generations[0].begins.pop()).await;
    stage.shows("topic show", 1, ["partition 1: new_partition: ", "topic adopt"]).await;
    let before = stage.everything().await;
    refused(&stage.made("topic adopt --settle 0s").await, "records of before are no rows yet: 3 in partition 0");
    assert_eq!(stage.everything().await, before);
    stage.come_to(0, 3, stage.clock.now()).await;
    stage.does("topic adopt --settle 0s", 0, ["2 records wait in new partitions"]).await;
    let adopted = stage.topic().await;
    let generation =
        |number, begins: &[u64]| Generation { number, begins: begins.iter().copied().map(Offset).collect() };
    assert_eq!(adopted.generations, [generation(1, &[0]), generation(2, &[3, 0])]);
    assert!(!adopted.is_paused && adopted.sums_from.is_empty());
    assert_eq!(losses(&stage).await, [""; 0], "nothing is lost");
    stage.shows("topic show", 0, []).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_which_nothing_is_known_any_more_gets_a_generation_above_every_version_in_the_table() {
    let stage = Stage::set().await;
    for key in ["topic/likes", "claim/likes/0", "claim/likes/1"] {
        stage.store().delete("checkpoints", &json!({"id": key})).await;
    }
    // A consumer begins with it.
    stage.does("topic adopt --settle 0s", 0, ["nothing to do"]).await;
    stage.store().put("likes", &json!({"pk": "p#1", "user_id": "u", "liked_at": 5, "v": version(6, 90)})).await;
    let cell = json!({"pk": "p#+views.0", "user_id": "\u{1}cell/likes/0", "n": 1, "to": version(7, 3)});
    stage.store().put("likes", &cell).await;
    stage.does("topic adopt --settle 0s", 0, []).await;
    assert_eq!(stage.topic().await.current().number, 8);
    assert_eq!(losses(&stage).await, ["topic_adopted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_topic_takes_the_place_of_the_one_that_the_rows_are_of() {
    let stage = Stage::set().await;
    stage.store().put("likes", &json!({"pk": "p#1", "user_id": "u", "liked_at": 5, "v": version(1, 4)})).await;
    stage.say("moved", 0, b"{}", &[], Duration::ZERO).await;
    let before = stage.everything().await;
    let shown = stage.tally("topic show --topic moved").await;
    assert!(shown.code == Some(1) && shown.out.starts_with("partition 0-1: other_topic: "), "{shown:?}");
    assert!(shown.out.contains("`--topic likes`") && shown.out.contains("topic adopt --topic moved"), "{shown:?}");
    let place = "name moved in place of likes, whose consumers stand still";
    stage.shows("topic adopt --topic moved", 1, ["begin generation 2 at its start: 1 records", place]).await;
    let of_nobody = stage.made("topic skip --topic moved --partition 0 --to 1 --settle 0s").await;
    refused(&of_nobody, "no consumer has read `moved` yet");
    assert_eq!(stage.everything().await, before);

    let claim = stage.claims.read(&partition(0)).await.unwrap().n;
    stage.does(ADOPT, 0, []).await;
    let moved = stage.claims.topic("moved").await.unwrap().unwrap();
    let unlike = moved.version(&Partition { topic: "moved".into(), index: 0 }, Offset(0), "p");
    assert!(unlike > Version::new(1, true, Offset(4)), "an unlike at the beginning of the topic counts");
    assert_eq!(losses(&stage).await, ["topic_adopted"]);
    assert!(stage.claims.read(&partition(0)).await.unwrap().n > claim, "its consumers look once more");
    stage.shows("topic show --topic moved", 0, []).await;
    stage.does(ADOPT, 0, ["nothing to do"]).await;
    let usual = stage.checkpoints.usual().await.unwrap();
    assert_eq!(usual.topic.as_deref(), Some("moved"));
    let of_likes = usual.misfit("likes");
    assert!(matches!(of_likes, Some(Standstill::OtherTopic { .. })), "consumers of the old topic stand still");

    // The way back is the same, above both generations.
    stage.does("topic adopt --settle 0s", 0, []).await;
    assert_eq!((stage.topic().await.current().number, stage.topic().await.is_paused), (3, false));
    let shown = stage.tally("topic show --topic moved").await;
    assert!(shown.out.starts_with("partition 0-1: other_topic: "), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_skipped_is_said_and_a_loss_is_open_from_then_on() {
    let stage = Stage::set().await;
    records(&stage, 0, 5).await;
    stage.consumers().mark(&partition(0), Offset(3)).await.unwrap();
    for (place, why) in [
        ("--partition 0 --to 6", "the log is from 0 to 5"),
        ("--partition 0 --to 0", "everything before 0 is done"),
        ("--partition 7 --to 0", "has no partition 7"),
    ] {
        refused(&stage.made(&format!("topic skip {place} --settle 0s")).await, why);
    }
    stage.does("topic skip --partition 0 --to 3 --settle 0s", 0, ["3 records of likes/0 were left out: 0 to 3"]).await;
    assert_eq!(losses(&stage).await, ["skipped"]);
    assert_eq!((stage.kept(0).await.safe, stage.topic().await.generations.len()), (Offset(3), 1));
    stage.shows("topic show", 0, []).await;
    // The group has committed 3, so it is set, too.
    stage.does("topic skip --partition 0 --to 5 --settle 0s", 0, []).await;
    assert_eq!(stage.consumers().bookmark(&partition(0)).await, Ok(Some(Offset(5))));
    stage.shows("stream gaps", 1, ["2 records of likes/0 were left out: 3 to 5"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_has_lost_its_tail_goes_on_in_the_next_generation_with_what_comes_behind() {
    let stage = Stage::set().await;
    records(&stage, 0, 5).await;
    records(&stage, 1, 2).await;
    stage.come_to(0, 9, stage.clock.now()).await;
    stage.consumers().mark(&partition(0), Offset(9)).await.unwrap();
    stage.does("topic skip --partition 0 --to 4 --settle 0s", 0, []).await;
    let after = stage.topic().await;
    let begins = vec![Offset(4), Offset(2)];
    assert_eq!((after.current(), after.is_paused), (&Generation { number: 2, begins }, false));
    let of = |offset| after.version_of_sum(0, Offset(offset)).generation();
    assert_eq!((of(3), of(4)), (1, 2), "the record at 4 is another one than the rows know");
    assert_eq!((stage.kept(0).await.safe, losses(&stage).await), (Offset(4), vec!["skipped".to_owned()]));
    stage.shows("topic show", 0, []).await;
}

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
        let stored = stage.claims.topic("moved").await.unwrap();
        stage.does(ADOPT, 0, []).await;
        assert_eq!(stage.checkpoints.usual().await.unwrap().topic.as_deref(), Some("moved"));
        let moved = stage.claims.topic("moved").await.unwrap().unwrap();
        let is_anew = stored.is_none_or(|stored| moved.current().number > stored.current().number);
        assert!(is_anew, "cut at {first}: the repetition begins a generation of its own: {moved:?}");
    }
}
