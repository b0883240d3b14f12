//! Verbs that change something: without `--yes` they only show the change, with it they make it and the ledger has it.
//! Here for dead letters, counters, pauses, erasures and imports.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tally_adapters::dynamodb::Operation;
use tally_core::ports::TopicReader;
use tally_testkit::{Process, eventually};

use crate::stage::{Said, Stage, partition};

const YES: [&str; 3] = ["--yes", "--why", "a test"];

/// A temporary file, whose name no other test has.
pub(crate) struct File(std::path::PathBuf);

impl File {
    pub(crate) fn of(name: &str, text: &str) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let nth = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tally-cli-{}-{nth}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Self(path)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        // What an import has written down about it.
        let _ = std::fs::remove_file(format!("{}.progress", self.name()));
    }
}

const EVENTS: &str = "{\"post_id\":\"p\",\"user_id\":\"u\",\"action\":\"like\"}\n{\"post_id\":\"p\",\"user_id\":\"v\",\"action\":\"like\"}\n";
const COUNTERS: &str = "[[counters]]\nname = \"views\"\nkind = \"sum\"\nadd = \"view\"\n";

async fn made(stage: &Stage, line: &[&str]) -> Said {
    stage.tally(&[line, &YES].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_nothing_is_changed_and_with_it_a_reason_is_needed() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    stage.say("likes", 0, b"{}", &[], std::time::Duration::ZERO).await;
    let file = File::of("dry.toml", COUNTERS);
    let like = json!({"pk": "p#2", "user_id": "u", "post_id": "p", "liked_at": 5});
    stage.store().put("likes", &like).await;
    let events = File::of("dry.ndjson", EVENTS);
    let before = stage.everything().await;
    let lines: [&[&str]; 9] = [
        &["post", "erase", "p"],
        &["user", "erase", "u"],
        &["import", events.name()],
        &["topic", "skip", "--partition", "0", "--to", "1"],
        &["dlq", "replay"],
        &["post", "recount", "p"],
        &["audit", "start"],
        &["pause", "consumer"],
        &["counters", "apply", file.name()],
    ];
    for line in lines {
        let said = stage.tally(line).await;
        assert_eq!(said.code, Some(0), "{line:?}: {said:?}");
        assert!(said.out.contains("nothing was changed: say --yes and --why"), "{line:?}: {said:?}");
        let json = stage.tally(&[line, &["-o", "json"]].concat()).await.json();
        let planned = json["plan"].as_array().map(Vec::len);
        assert!(json["dry_run"] == true && planned.is_some_and(|lines| lines > 0), "{line:?}: {json}");
        let hasty = stage.tally(&[line, &["--yes"]].concat()).await;
        assert_eq!(hasty.code, Some(2), "{line:?}: {hasty:?}");
    }
    assert_eq!(stage.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_on_the_ledger_with_who_and_why_and_what_it_came_to() {
    let stage = Stage::set().await;
    let said = made(&stage, &["audit", "start"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(stage.recounts.audit_queued().await.unwrap().is_some());
    let line = stage.recounts.operations(9).await.unwrap().remove(0);
    assert_eq!((line.by.as_str(), line.why.as_str(), line.command.as_str()), ("anna", "a test", "audit start"));
    assert_eq!(line.ended.as_deref(), Some("queued: see tally audit watch"));
    let many = Operation { command: "import".into(), ended: Some("2 written\n1 rejected\n".into()), ..line };
    stage.recounts.put_operation(&many).await.unwrap();
    let shown = stage.tally(&["ledger"]).await;
    assert!(shown.out.contains("import") && shown.out.contains("anna"), "{shown:?}");
    assert!(shown.out.contains("2 written; 1 rejected\n"), "{shown:?}");
    let watched = stage.tally(&["audit", "watch", "--once"]).await;
    assert!(watched.out.contains("an audit is queued"), "{watched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_is_on_the_ledger_too() {
    let stage = Stage::set().await;
    stage.say("likes", 0, b"{}", &[], std::time::Duration::ZERO).await;
    let refused = tally_emulator::Rule::new(tally_emulator::Fault::InternalError { applied: Some(false) });
    stage.store().faults([refused.on("UpdateItem")]);
    let said = made(&stage, &["topic", "skip", "--partition", "0", "--to", "1"]).await;
    assert_eq!(said.code, Some(69), "{said:?}");
    let line = stage.recounts.operations(9).await.unwrap().remove(0);
    assert!(line.ended.as_deref().is_some_and(|ended| ended.starts_with("failed: cannot record the loss")), "{line:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_shown_and_replayed_by_reason() {
    let stage = Stage::set().await;
    for offset in [5, 6] {
        stage.put_aside(offset).await;
    }
    let listed = stage.tally(&["dlq", "list"]).await;
    assert_eq!(listed.code, Some(1), "{listed:?}");
    assert!(listed.out.contains("2 in all"), "{listed:?}");
    // Another deployment shares the topic.
    stage.put_aside_of("arn:theirs", 5).await;
    let listed = stage.tally(&["dlq", "list"]).await;
    assert!(listed.out.contains("2 in all\n1 more of arn:theirs"), "{listed:?}");
    let status = stage.tally(&["status", "-o", "json"]).await;
    assert!(status.out.contains("2 in likes.dlq"), "{status:?}");
    let shown = stage.tally(&["dlq", "show", "--partition", "1", "--offset", "6", "-o", "json"]).await.json();
    assert_eq!((&shown["total"], &shown["letters"][0]["offset"]), (&1.into(), &6.into()), "{shown}");
    let shown = stage.tally(&["dlq", "show", "--partition", "1", "--offset", "6"]).await;
    for held in [
        r#"value      {"post_id":"p","user_id":"u","action":"like"}"#,
        "key        p",
        "put aside  20",
        "put back   no",
    ] {
        assert!(shown.code == Some(1) && shown.out.contains(held), "{held}: {shown:?}");
    }
    let would = stage.tally(&["dlq", "replay", "--reason", "refused_by_store"]).await;
    assert!(
        would.out.contains(
            "comes back\ntally dlq list shows some of the letters\n2 letters to send\n1 letter of other topics or deployments\n"
        ),
        "{would:?}"
    );
    let other = stage.tally(&["dlq", "replay", "--reason", "not_json"]).await;
    assert!(other.out.contains("nothing to do"), "{other:?}");
    let unknown = stage.tally(&["dlq", "replay", "--reason", "tuesday"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let said = made(&stage, &["dlq", "replay", "--reason", "refused_by_store"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let logs = stage.reader("likes").logs().await.unwrap();
    assert_eq!(logs.iter().map(|(_, log)| log.end.0).sum::<u64>(), 2);
    let again = made(&stage, &["dlq", "replay", "--reason", "refused_by_store"]).await;
    assert!(again.out.starts_with("2 letters put back before\n"), "each is sent once: {again:?}");
    assert!(again.out.ends_with("nothing to do\n"), "{again:?}");
    let listed = stage.tally(&["dlq", "list"]).await;
    assert!(listed.code == Some(0) && listed.out.starts_with("no letters, 2 more were put back"), "{listed:?}");
    let shown = stage.tally(&["dlq", "show", "--partition", "1", "--offset", "6"]).await;
    assert!(shown.code == Some(0) && shown.out.contains("put back   yes"), "{shown:?}");
    // A letter that is no event is named, and not sent.
    let headers = [("__connect.errors.topic", "likes"), ("__connect.errors.class.name", "not_json")];
    let at = [("__connect.errors.partition", "0"), ("__connect.errors.offset", "9")];
    stage.say("likes.dlq", 0, b"{", &[headers, at].concat(), std::time::Duration::ZERO).await;
    let still = made(&stage, &["dlq", "replay", "--reason", "not_json"]).await;
    assert_eq!(still.out, "1 letter still no event\nnothing to do\n", "{still:?}");
    let all = made(&stage, &["dlq", "replay"]).await;
    let done = "1 letter still no event, 2 letters put back before, 1 letter of other topics or deployments\n";
    assert!(all.out.ends_with(done), "{all:?}");
    let of_reason = stage.tally(&["dlq", "replay", "--reason", "not_json"]).await;
    assert!(!of_reason.out.contains("passed over"), "one of a reason begins with the first letter: {of_reason:?}");
    let again = stage.tally(&["dlq", "replay"]).await;
    assert!(again.out.contains("passed over: --reason or --since reads them again\nnothing to do"), "{again:?}");
    // Although a replay has read it, the list and the status still have it.
    assert_eq!(stage.tally(&["dlq", "list"]).await.code, Some(1));
    assert!(stage.tally(&["status"]).await.out.contains("1 in likes.dlq"));
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_defined_once() {
    let stage = Stage::set().await;
    let file = File::of("counters.toml", COUNTERS);
    let said = made(&stage, &["counters", "apply", file.name()]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(stage.checkpoints.definitions().await.unwrap().named("views").is_some());
    let listed = stage.tally(&["counters", "list"]).await;
    assert!(listed.out.contains("views  sum   view"), "{listed:?}");
    let again = made(&stage, &["counters", "apply", file.name()]).await;
    assert!(again.out.contains("nothing to do"), "{again:?}");
    assert_eq!(stage.recounts.operations(9).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_paused_in_every_partition_and_go_on_where_they_were() {
    let stage = Stage::set().await;
    let before = stage.claims.read(&partition(1)).await.unwrap();
    let said = made(&stage, &["pause", "consumer", "--settle", "1s"]).await;
    assert_eq!((said.code, said.out.contains("2 partitions paused")), (Some(0), true), "{said:?}");
    assert!(said.err.contains("waiting for 1 s more: what consumers have signed before"), "{said:?}");
    let claim = stage.claims.read(&partition(1)).await.unwrap();
    assert_eq!(
        (claim.n, &claim.kept),
        (before.n + 1, &before.kept),
        "raised, so that no consumer confirms it any more"
    );
    let status = stage.tally(&["status"]).await;
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.out.contains("likes: 2 partitions, lag 0: tally resume consumer"), "{status:?}");
    assert!(!status.out.contains("may still change"), "the pause has waited: {status:?}");
    let again = made(&stage, &["pause", "consumer"]).await;
    assert!(again.out.contains("nothing to do"), "{again:?}");
    let paused = stage.everything().await;
    let dry = stage.tally(&["resume", "consumer"]).await;
    assert!(dry.code == Some(0) && dry.out.contains("resume likes: its 2 partitions"), "{dry:?}");
    assert!(dry.out.contains("nothing was changed"), "{dry:?}");
    assert_eq!(stage.everything().await, paused, "a resume is shown first, too");
    let said = made(&stage, &["resume", "consumer"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!stage.topic().await.is_paused);
    assert_eq!(stage.tally(&["status", "--late", "10m"]).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_was_not_waited_for_is_begun_again() {
    let stage = Stage::set().await;
    stage.know(|topic| topic.is_paused = true).await;
    let before = stage.claims.read(&partition(0)).await.unwrap().n;
    let said = made(&stage, &["pause", "consumer", "--settle", "0s"]).await;
    assert_eq!((said.code, said.out.contains("2 partitions paused")), (Some(0), true), "{said:?}");
    assert_eq!(stage.claims.read(&partition(0)).await.unwrap().n, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_somebody_ends_while_it_waits_does_not_say_that_consumers_are_paused() {
    let stage = Stage::set().await;
    let pause = made(&stage, &["pause", "consumer", "--settle", "10s"]);
    let resume = async {
        while !stage.topic().await.is_paused {
            tokio::task::yield_now().await;
        }
        assert_eq!(made(&stage, &["resume", "consumer"]).await.code, Some(0));
        stage.know(|topic| topic.is_paused = true).await;
    };
    let (said, ()) = tokio::join!(pause, resume);
    assert_eq!((said.code, said.out.contains("partitions paused")), (Some(1), false), "{said:?}");
    assert!(said.err.contains("not paused: consumers were resumed"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_is_produced_and_no_row_is_touched_and_the_ledger_names_no_user() {
    let stage = Stage::set().await;
    for (pk, user) in [("p#2", "user-77"), ("p#1", "v"), ("q#2", "user-77")] {
        let post = pk.split('#').next().unwrap();
        let like = json!({"pk": pk, "user_id": user, "post_id": post, "liked_at": 5});
        stage.store().put("likes", &like).await;
    }
    let rows = stage.everything().await["likes"].clone();
    let said = made(&stage, &["user", "erase", "user-77"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("3 rows read, 2 members found\nusers with rows or tombstones: 1 of 1\n2 events produced"),
        "{said:?}"
    );
    stage.catch_up().await;
    let said = made(&stage, &["post", "erase", "p"]).await;
    assert!(said.code == Some(0) && said.out.contains("2 events produced"), "{said:?}");
    let logs = stage.reader("likes").logs().await.unwrap();
    assert_eq!(logs.iter().map(|(_, log)| log.end.0).sum::<u64>(), 4);
    assert_eq!(stage.everything().await["likes"], rows);
    stage.catch_up().await;
    let none = stage.tally(&["user", "erase", "stranger"]).await;
    assert!(none.out.ends_with("users with rows or tombstones: 0 of 1\nnothing to do\n"), "{none:?}");
    // Many users are read from a file, in one pass.
    let file = File::of("users.txt", "user-77\n\nv\nstranger\n");
    let dry = stage.tally(&["user", "erase", "--file", file.name()]).await;
    let expected = "3 rows read, 3 members found\nusers with rows or tombstones: 2 of 3\n\
                    take 3 members out of the sets of 3 users, by events to `likes`\n";
    assert!(dry.code == Some(0) && dry.out.starts_with(expected), "{dry:?}");
    let said = made(&stage, &["user", "erase", "--file", file.name()]).await;
    assert!(said.out.contains("3 events produced"), "{said:?}");
    let logs = stage.reader("likes").logs().await.unwrap();
    assert_eq!(logs.iter().map(|(_, log)| log.end.0).sum::<u64>(), 7);
    let lines = stage.recounts.operations(9).await.unwrap();
    let erased =
        |users: &str| lines.iter().any(|line| line.plan.starts_with(&format!("take {users} out of their sets")));
    assert!(erased("1 user") && erased("3 users"), "{lines:?}");
    assert!(!format!("{lines:?}").contains("user-77"), "the ledger keeps its lines, so it names no user: {lines:?}");
    let unnamed = stage.tally(&["user", "erase"]).await;
    assert!(unnamed.code == Some(2) && unnamed.err.contains("by their ids or --file"), "{unnamed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_that_waits_in_kafka_is_waited_for_before_its_user_is_erased() {
    let stage = Stage::set().await;
    stage.say("likes", 0, br#"{"post_id":"p","user_id":"u","action":"like"}"#, &[], std::time::Duration::ZERO).await;
    let before = stage.everything().await;
    let waits = "likes/0: 1 record not in the rows yet";
    let dry = stage.tally(&["user", "erase", "u"]).await;
    assert!(dry.code == Some(0) && dry.out.contains(waits), "{dry:?}");
    let said = made(&stage, &["user", "erase", "u", "--patience", "1s"]).await;
    let why = format!("nothing was erased: likes that wait in Kafka would come back: {waits}");
    assert!(said.code == Some(1) && said.err.contains(&why), "{said:?}");
    stage.know(|topic| topic.is_paused = true).await;
    let said = made(&stage, &["user", "erase", "u"]).await;
    assert!(said.code == Some(1) && said.err.contains(&format!("{why}: paused, tally resume consumer")), "{said:?}");
    for what in ["likes", "likes in kafka"] {
        assert_eq!(stage.everything().await[what], before[what]);
    }
    stage.know(|topic| topic.is_paused = false).await;
    let line = [&["user", "erase", "u"], &YES[..]].concat();
    let erasing = Process::start("erase", &mut stage.command(&line)).unwrap();
    erasing.says("waiting for the consumers").await;
    let like = json!({"pk": "p#2", "user_id": "u", "post_id": "p", "liked_at": 5});
    stage.store().put("likes", &like).await;
    stage.come_to(0, 1, stage.clock.now()).await;
    eventually("the like is found", async || {
        let logs = stage.reader("likes").logs().await.unwrap();
        logs.iter().map(|(_, log)| log.end.0).sum::<u64>() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_imported_once_and_what_is_no_event_is_said() {
    let stage = Stage::set().await;
    // The name of the file would move a terminal's cursor.
    let file = File::of("likes\u{1b}[2J.ndjson", &format!("{EVENTS}nonsense\n"));
    let first = "2 events sent of 3 lines, lines that are no events: 1 (1 not_json), kept in ";
    for outcome in [first, "nothing is new behind line 3: 2 events were sent before\nnothing to do"] {
        let said = made(&stage, &["import", file.name()]).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.out.contains(outcome), "{said:?}");
        assert!(!format!("{}{}", said.out, said.err).contains('\u{1b}'), "{said:?}");
        let logs = stage.reader("likes").logs().await.unwrap();
        assert_eq!(logs.iter().map(|(_, log)| log.end.0).sum::<u64>(), 2);
    }
    let missing = stage.tally(&["import", "/nowhere/\u{1b}[2J"]).await;
    assert!(missing.err.contains("cannot open `/nowhere/\\u{1b}[2J`"), "{missing:?}");
    for ending in ["progress", "rejected"] {
        std::fs::remove_file(format!("{}.{ending}", file.name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_killed_goes_on_where_it_was_noted_and_one_of_nothing_is_refused() {
    const LINES: u64 = 3_000;
    let stage = Stage::set().await;
    let line =
        |n| format!("{{\"post_id\":\"p{}\",\"user_id\":\"u{n}\",\"action\":\"like\",\"ts\":1500000000000}}\n", n % 31);
    let file = File::of("killed.ndjson", &(0..LINES).map(line).collect::<String>());
    let import = |rate| [&["import", file.name(), "--rate", rate], &YES[..]].concat();
    let first = Process::start("import", &mut stage.command(&import("1000"))).unwrap();
    let progress = format!("{}.progress", file.name());
    eventually("some of it is noted", async || std::fs::exists(&progress).unwrap()).await;
    first.kill().await.unwrap();
    let said = stage.tally(&import("1000000")).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut users = std::collections::BTreeSet::new();
    let (reader, mut sent) = (stage.reader("likes"), 0);
    for (partition, log) in reader.logs().await.unwrap() {
        let mut at = log.start;
        while at < log.end {
            let records = reader.read(&partition, at, log.end).await.unwrap();
            at = records.last_offset().unwrap().next();
            for record in records.iter() {
                let event: serde_json::Value = serde_json::from_slice(record.value.unwrap()).unwrap();
                users.insert(event["user_id"].to_string());
                sent += 1;
            }
        }
    }
    assert!(users.len() as u64 == LINES && sent < 2 * LINES, "{} users, {sent} events", users.len());
    std::fs::remove_file(progress).unwrap();

    let missing = made(&stage, &["import", "/nowhere/likes.csv"]).await;
    assert!(missing.code == Some(1) && missing.err.contains("cannot open `/nowhere/likes.csv`"), "{missing:?}");
    // Standard input is empty here.
    let empty = made(&stage, &["import", "-"]).await;
    assert!(empty.code == Some(0) && empty.out.contains("0 events sent of 0 lines"), "{empty:?}");
    let unnamed = made(&stage, &["import", "-", "--format", "csv"]).await;
    assert!(unnamed.err.contains("the first line has to name"), "{unnamed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_import_names_the_columns_that_it_ignores_and_the_times_that_it_found() {
    let stage = Stage::set().await;
    let lines =
        "post_id,user_id,created_at,ts\np,u,2020-01-01,1577836800000\np,v,,1609459200000\np,w,,1700000000\np,x,,\n";
    let file = File::of("likes.csv", lines);
    let dry = stage.tally(&["import", file.name()]).await;
    assert_eq!(dry.code, Some(1), "a time in seconds is refused: {dry:?}");
    for said in [
        "columns: post_id, user_id, ts",
        "columns that are ignored: created_at",
        "times: from 2020-01-01 00:00:00 to 2021-01-01 00:00:00",
        "events that state no time: 1, ",
        "lines that are no events: 1 (1 old_timestamp)\nline 4: old_timestamp: 1700000000 milliseconds are 1970-01-20",
        "send 3 events of 5 lines to `likes`",
    ] {
        assert!(dry.out.contains(said), "{said}: {dry:?}");
    }
    let dry = stage.tally(&["import", file.name(), "--allow-old-times"]).await;
    assert!(dry.code == Some(0) && dry.out.contains("times: from 1970-01-20 16:13:20 to 2021"), "{dry:?}");
    let file = File::of("likes.ndjson", "{\"post_id\":\"p\",\"user_id\":\"u\",\"action\":\"like\",\"liked_at\":1}\n");
    let dry = stage.tally(&["import", file.name()]).await;
    assert!(dry.code == Some(0) && dry.out.contains("columns that are ignored: liked_at"), "{dry:?}");
}
