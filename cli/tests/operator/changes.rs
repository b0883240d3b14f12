//! Tests the verbs of `tally` that change dead letters, counters, pauses and erasures, and that import likes: without
//! `--yes` they only show the change, with it they make it and write it to the operators' ledger.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tally_adapters::dynamodb::Operation;
use tally_testkit::process::run;
use tally_testkit::{Process, eventually, records};

use crate::stage::{Stage, VIEWS, partition, refused};

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

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_nothing_is_changed_and_with_it_a_reason_is_needed() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    stage.say("likes", 0, b"{}", &[], Duration::ZERO).await;
    let file = File::of("dry.toml", VIEWS);
    stage.row("p#2", "u").await;
    let events = File::of("dry.ndjson", EVENTS);
    let before = stage.everything().await;
    for line in [
        "post erase p",
        "user erase u",
        &format!("import {}", events.name()),
        "topic skip --partition 0 --to 1",
        "dlq replay",
        "post recount p",
        "audit start",
        "pause consumer",
        &format!("counters apply {}", file.name()),
    ] {
        stage.shows(line, 0, ["nothing was changed: say --yes and --why"]).await;
        let json = stage.tally(&format!("{line} -o json")).await.json();
        let planned = json["plan"].as_array().map(Vec::len);
        assert!(json["dry_run"] == true && planned.is_some_and(|lines| lines > 0), "{line:?}: {json}");
        stage.shows(&format!("{line} --yes"), 2, []).await;
    }
    assert_eq!(stage.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_on_the_ledger_with_who_and_why_and_what_it_came_to() {
    let stage = Stage::set().await;
    stage.does("audit start", 0, []).await;
    assert!(stage.recounts.audit_queued().await.unwrap().is_some());
    let line = stage.recounts.operations(9).await.unwrap().remove(0);
    assert_eq!((line.by.as_str(), line.why.as_str(), line.command.as_str()), ("anna", "a test", "audit start"));
    assert_eq!(line.ended.as_deref(), Some("queued: see tally audit watch"));
    let known =
        run(stage.command("audit start --yes --why again").env_remove("TALLY_OPERATOR").env("USER", "kim")).await;
    assert_eq!((known.code, &*stage.recounts.operations(9).await.unwrap()[0].by), (Some(0), "kim"), "{known:?}");
    let many = Operation { command: "import".into(), ended: Some("2 written\n1 rejected\n".into()), ..line };
    stage.recounts.put_operation(&many).await.unwrap();
    stage.shows("ledger", 0, ["import", "anna", "2 written; 1 rejected\n"]).await;
    stage.shows("audit watch --once", 0, ["an audit is queued"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_is_on_the_ledger_too() {
    let stage = Stage::set().await;
    stage.say("likes", 0, b"{}", &[], Duration::ZERO).await;
    let refused = tally_emulator::Rule::new(tally_emulator::Fault::InternalError { applied: Some(false) });
    stage.store().faults([refused.on("UpdateItem")]);
    stage.does("topic skip --partition 0 --to 1", 69, []).await;
    let line = stage.recounts.operations(9).await.unwrap().remove(0);
    assert!(line.ended.as_deref().is_some_and(|ended| ended.starts_with("failed: cannot record the loss")), "{line:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_shown_and_replayed_by_reason() {
    let stage = Stage::set().await;
    for offset in [5, 6] {
        stage.put_aside(offset).await;
    }
    stage.shows("dlq list", 1, ["2 in all"]).await;
    // Another deployment shares the topic.
    stage.put_aside_of("arn:theirs", 5).await;
    stage.shows("dlq list", 1, ["2 in all\n1 more of arn:theirs"]).await;
    stage.shows("status -o json", 1, ["2 in likes.dlq"]).await;
    let shown = stage.tally("dlq show --partition 1 --offset 6 -o json").await.json();
    assert_eq!((&shown["total"], &shown["letters"][0]["offset"]), (&1.into(), &6.into()), "{shown}");
    let value = r#"value      {"post_id":"p","user_id":"u","action":"like"}"#;
    let held = [value, "key        p", "put aside  20", "put back   no"];
    stage.shows("dlq show --partition 1 --offset 6", 1, held).await;
    let would = "comes back\ntally dlq list shows some of the letters\n2 letters to send\n1 letter of other topics or deployments\n";
    stage.shows("dlq replay --reason refused_by_store", 0, [would]).await;
    stage.shows("dlq replay --reason not_json", 0, ["nothing to do"]).await;
    stage.shows("dlq replay --reason tuesday", 2, []).await;
    stage.does("dlq replay --reason refused_by_store", 0, []).await;
    assert_eq!(stage.sent().await, 2);
    let again = stage.made("dlq replay --reason refused_by_store").await;
    assert!(again.out.starts_with("2 letters put back before\n"), "each is sent once: {again:?}");
    assert!(again.out.ends_with("nothing to do\n"), "{again:?}");
    let listed = stage.tally("dlq list").await;
    assert!(listed.code == Some(0) && listed.out.starts_with("no letters, 2 more were put back"), "{listed:?}");
    stage.shows("dlq show --partition 1 --offset 6", 0, ["put back   yes"]).await;
    // A letter that is no event is named, and not sent.
    let headers = [("__connect.errors.topic", "likes"), ("__connect.errors.class.name", "not_json")];
    let at = [("__connect.errors.partition", "0"), ("__connect.errors.offset", "9")];
    stage.say("likes.dlq", 0, b"{", &[&headers[..], &at, &[("trace", "t")]].concat(), Duration::ZERO).await;
    stage.shows("dlq show --partition 0 --offset 9", 1, ["header     trace: t"]).await;
    stage.shows("dlq list --since 253402300799999", 0, ["no letters"]).await;
    let still = stage.made("dlq replay --reason not_json").await;
    assert_eq!(still.out, "1 letter still no event\nnothing to do\n", "{still:?}");
    let all = stage.made("dlq replay").await;
    let done = "1 letter still no event, 2 letters put back before, 1 letter of other topics or deployments\n";
    assert!(all.out.ends_with(done), "{all:?}");
    let of_reason = stage.tally("dlq replay --reason not_json").await;
    assert!(!of_reason.out.contains("passed over"), "one of a reason begins with the first letter: {of_reason:?}");
    stage.shows("dlq replay", 0, ["passed over: --reason or --since reads them again\nnothing to do"]).await;
    // Although a replay has read it, the list and the status still have it.
    stage.shows("dlq list", 1, []).await;
    stage.shows("status", 1, ["1 in likes.dlq"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_receipt_that_cannot_be_read_the_place_is_said_and_everything_else_works() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    let ours = stage.deployment().await;
    let headers = [("__tally.replayed.deployment", ours.as_str()), ("__tally.replayed.topic", "likes")];
    stage.say("likes.dlq", 0, b"{", &headers, Duration::ZERO).await;
    for (line, code, found) in [
        ("dlq list", 1, "1 in all"),
        ("dlq show --partition 1 --offset 5", 1, "put back   no"),
        ("dlq replay", 0, "1 letter to send"),
        ("status", 1, "1 in likes.dlq"),
        ("dlq replay --yes --why test", 1, "the receipt at likes.dlq/0, offset 1 cannot be read"),
    ] {
        let said = stage.shows(line, code, [found]).await;
        assert!(said.err.contains("cannot be read is passed over: likes.dlq/0, offset 1"), "{line}: {said:?}");
    }
    assert_eq!(stage.sent().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_defined_once_and_never_change_and_a_file_that_is_no_list_is_refused_by_name() {
    let stage = Stage::set().await;
    let file = File::of("counters.toml", VIEWS);
    let apply = format!("counters apply {}", file.name());
    stage.does(&apply, 0, []).await;
    assert!(stage.checkpoints.definitions().await.unwrap().named("views").is_some());
    stage.shows("counters list", 0, ["views  sum   view"]).await;
    stage.does(&apply, 0, ["nothing to do"]).await;
    assert_eq!(stage.recounts.operations(9).await.unwrap().len(), 1);
    let before = stage.everything().await;
    for (text, why) in [
        (VIEWS.replace("sum", "set"), "views"),
        (VIEWS.replace("\"view\"", "\"see\""), "views"),
        (VIEWS.replace("view", "more") + "topic = \"likes\"", "takes the topic `likes` for itself"),
        (format!("{VIEWS}[[counters]]\nname = \"more\"\nkind = \"sum\"\nadd = \"unlike\""), "unlike"),
        (String::new(), "it has no table [[counters]]"),
        (format!("{VIEWS}colour = \"red\""), "colour"),
        (VIEWS.replace("views", "A"), "counter \"A\""),
    ] {
        let file = File::of("refused.toml", &text);
        refused(&stage.made(&format!("counters apply {}", file.name())).await, why);
    }
    assert_eq!(stage.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_paused_in_every_partition_and_go_on_where_they_were() {
    let stage = Stage::set().await;
    let before = stage.claims.read(&partition(1)).await.unwrap();
    let said = stage.does("pause consumer --settle 1s", 0, ["2 partitions paused"]).await;
    assert!(said.err.contains("waiting for 1 s more: what consumers have signed before"), "{said:?}");
    let claim = stage.claims.read(&partition(1)).await.unwrap();
    // Raised, so that no consumer confirms it any more.
    assert_eq!((claim.n, &claim.kept), (before.n + 1, &before.kept));
    let status = stage.shows("status", 1, ["likes: 2 partitions, lag 0: tally resume consumer"]).await;
    assert!(!status.out.contains("may still change"), "the pause has waited: {status:?}");
    stage.does("pause consumer", 0, ["nothing to do"]).await;
    let paused = stage.everything().await;
    stage.shows("resume consumer", 0, ["resume likes: its 2 partitions", "nothing was changed"]).await;
    assert_eq!(stage.everything().await, paused, "a resume is shown first, too");
    stage.does("resume consumer", 0, []).await;
    assert!(!stage.topic().await.is_paused);
    stage.shows("status --late 10m", 0, []).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_somebody_ends_while_it_waits_does_not_say_that_consumers_are_paused() {
    let stage = Stage::set().await;
    let pause = stage.made("pause consumer --settle 10s");
    let resume = async {
        while !stage.topic().await.is_paused {
            tokio::task::yield_now().await;
        }
        stage.does("resume consumer", 0, []).await;
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
        stage.row(pk, user).await;
    }
    let rows = stage.everything().await["likes"].clone();
    let one = "3 rows read, 2 members found\nusers with rows or tombstones: 1 of 1\n2 events produced";
    stage.does("user erase user-77", 0, [one]).await;
    stage.catch_up().await;
    stage.does("post erase p", 0, ["2 events produced"]).await;
    assert_eq!(stage.sent().await, 4);
    assert_eq!(stage.everything().await["likes"], rows);
    stage.catch_up().await;
    let none = stage.tally("user erase stranger").await;
    assert!(none.out.ends_with("users with rows or tombstones: 0 of 1\nnothing to do\n"), "{none:?}");
    // Many users are read from a file, in one pass.
    let file = File::of("users.txt", "user-77\n\nv\nstranger\n");
    let erase = format!("user erase --file {}", file.name());
    let dry = stage.tally(&erase).await;
    let expected = "3 rows read, 3 members found\nusers with rows or tombstones: 2 of 3\n\
                    take 3 members out of the sets of 3 users, by events to `likes`\n";
    assert!(dry.code == Some(0) && dry.out.starts_with(expected), "{dry:?}");
    stage.does(&erase, 0, ["3 events produced"]).await;
    assert_eq!(stage.sent().await, 7);
    let lines = stage.recounts.operations(9).await.unwrap();
    let erased =
        |users: &str| lines.iter().any(|line| line.plan.starts_with(&format!("take {users} out of their sets")));
    assert!(erased("1 user") && erased("3 users"), "{lines:?}");
    assert!(!format!("{lines:?}").contains("user-77"), "the ledger keeps its lines, so it names no user: {lines:?}");
    stage.shows("user erase", 2, ["by their ids or --file"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_that_waits_in_kafka_is_waited_for_before_its_user_is_erased() {
    let stage = Stage::set().await;
    stage.like(0, "p", "u").await;
    let before = stage.everything().await;
    let waits = "likes/0: 1 record not in the rows yet";
    stage.shows("user erase u", 0, [waits]).await;
    let why = format!("nothing was erased: likes that wait in Kafka would come back: {waits}");
    stage.does("user erase u --patience 1s", 1, [&*why]).await;
    stage.know(|topic| topic.is_paused = true).await;
    stage.does("user erase u", 1, [&format!("{why}: paused, tally resume consumer")]).await;
    for what in ["likes", "likes in kafka"] {
        assert_eq!(stage.everything().await[what], before[what]);
    }
    stage.know(|topic| topic.is_paused = false).await;
    let erasing = Process::start("erase", &mut stage.command("user erase u --yes --why test")).unwrap();
    erasing.says("waiting for the consumers").await;
    stage.row("p#2", "u").await;
    stage.come_to(0, 1, stage.clock.now()).await;
    eventually("the like is found", async || stage.sent().await == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_imported_once_and_what_is_no_event_is_said() {
    let stage = Stage::set().await;
    // The name of the file would move a terminal's cursor.
    let file = File::of("likes\u{1b}[2J.ndjson", &format!("{EVENTS}nonsense\n"));
    let first = "2 events sent of 3 lines, lines that are no events: 1 (1 not_json), kept in ";
    for outcome in [first, "nothing is new behind line 3: 2 events were sent before\nnothing to do"] {
        let said = stage.does(&format!("import {}", file.name()), 1, [outcome]).await;
        assert!(!format!("{}{}", said.out, said.err).contains('\u{1b}'), "{said:?}");
        assert_eq!(stage.sent().await, 2);
    }
    stage.shows("import /nowhere/\u{1b}[2J", 1, ["cannot open `/nowhere/\\u{1b}[2J`"]).await;
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
    let import = |rate| format!("import {} --rate {rate} --yes --why test", file.name());
    let first = Process::start("import", &mut stage.command(&import(1_000))).unwrap();
    let progress = format!("{}.progress", file.name());
    eventually("some of it is noted", async || std::fs::exists(&progress).unwrap()).await;
    first.kill().await.unwrap();
    stage.shows(&import(1_000_000), 0, ["with earlier runs"]).await;
    let mut users = std::collections::BTreeSet::new();
    for (_, run) in records(&stage.reader("likes")).await.unwrap() {
        for record in run.iter() {
            let event: serde_json::Value = serde_json::from_slice(record.value.unwrap()).unwrap();
            users.insert(event["user_id"].to_string());
        }
    }
    assert_eq!(users.len() as u64, LINES);
    std::fs::remove_file(progress).unwrap();

    // Standard input is empty here.
    stage.does("import -", 0, ["0 events sent of 0 lines"]).await;
    stage.does("import - --format csv", 1, ["the first line has to name"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_import_names_the_columns_that_it_ignores_and_the_times_that_it_found() {
    let stage = Stage::set().await;
    let lines =
        "post_id,user_id,created_at,ts\np,u,2020-01-01,1577836800000\np,v,,1609459200000\np,w,,1700000000\np,x,,\n";
    let file = File::of("likes.csv", lines);
    let import = format!("import {}", file.name());
    let found = [
        "columns: post_id, user_id, ts",
        "columns that are ignored: created_at",
        "times: from 2020-01-01 00:00:00 to 2021-01-01 00:00:00",
        "events that state no time: 1, ",
        "lines that are no events: 1 (1 old_timestamp)\nline 4: old_timestamp: 1700000000 milliseconds are 1970-01-20",
        "send 3 events of 5 lines to `likes`",
    ];
    // A time in seconds is refused.
    stage.shows(&import, 1, found).await;
    stage.shows(&(import + " --allow-old-times"), 0, ["times: from 1970-01-20 16:13:20 to 2021"]).await;
    let file = File::of("likes.ndjson", "{\"post_id\":\"p\",\"user_id\":\"u\",\"action\":\"like\",\"liked_at\":1}\n");
    stage.shows(&format!("import {}", file.name()), 0, ["columns that are ignored: liked_at"]).await;
}
