//! Tests of `tally import`, which sends likes from a file to Kafka: the order of what it sends when Kafka fails, where
//! it goes on after it was stopped, when it refuses to go on, and its rate.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tally_adapters::memory::log::Broker;
use tally_core::definitions::Definitions;
use tally_core::event::decode;
use tally_core::ports::log::Written;
use tally_service::Host;
use tally_testkit::records;

use super::super::Format;
use super::*;

const PARTITIONS: u32 = 4;

/// A temporary folder, which is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tally-import-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn settings(&self, text: &str) -> ImportArgs {
        let file = self.0.join("likes");
        std::fs::write(&file, text).unwrap();
        ImportArgs {
            file,
            format: Some(Format::Ndjson),
            rate: 1_000_000,
            ts: None,
            progress: Some(self.0.join("progress")),
            rejected: Some(self.0.join("rejected")),
            max_rejected: 10,
            allow_old_times: true,
            dry_run: false,
        }
    }

    fn rejected(&self) -> Vec<(u64, String)> {
        let text = std::fs::read_to_string(self.0.join("rejected")).unwrap_or_default();
        let entry = |line: &str| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            (entry["line"].as_u64().unwrap(), entry["reason"].as_str().unwrap().to_owned())
        };
        text.lines().map(entry).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A broker whose sends fail as `mood` says, by their number, beginning with 1.
struct Moody {
    broker: Broker,
    sends: AtomicU32,
    mood: Box<dyn Fn(u32) -> Option<Fault> + Send + Sync>,
}

#[async_trait]
impl Producer for Moody {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let send = self.sends.fetch_add(1, Ordering::Relaxed) + 1;
        let outcome = match (self.mood)(send) {
            Some(fault) => Err(fault),
            None => self.broker.send(record).await,
        };
        // The answer takes a while, so that several sends are under way at once.
        tokio::time::sleep(Duration::from_millis(3)).await;
        outcome
    }
}

fn broker() -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", PARTITIONS);
    broker
}

fn moody(broker: &Broker, mood: impl Fn(u32) -> Option<Fault> + Send + Sync + 'static) -> Arc<Moody> {
    Arc::new(Moody { broker: broker.clone(), sends: AtomicU32::new(0), mood: Box::new(mood) })
}

async fn opened(broker: &Broker, producer: Arc<dyn Producer>, settings: ImportArgs) -> anyhow::Result<Import> {
    let to = Target { reader: Arc::new(broker.reader("import", "likes")), producer, topic: "likes".to_owned() };
    Import::open(to, settings, &Host::new("import")).await
}

/// Imports the file. Returns whether all of its lines were events.
async fn is_whole(broker: &Broker, producer: Arc<dyn Producer>, settings: ImportArgs) -> anyhow::Result<bool> {
    let mut import = opened(broker, producer, settings).await?;
    import.run().await?;
    Ok(import.place.rejected() == 0)
}

async fn imported(broker: &Broker, settings: ImportArgs) -> anyhow::Result<bool> {
    is_whole(broker, Arc::new(broker.clone()), settings).await
}

/// Returns user and time of each event in the topic, partition by partition and in order.
async fn events(broker: &Broker) -> Vec<(String, u64)> {
    let mut events = Vec::new();
    for (_, run) in records(&broker.reader("test", "likes")).await.unwrap() {
        events.extend(run.iter().map(|record| {
            let event = decode(record, &Definitions::likes_alone()).unwrap();
            assert_eq!(record.key, Some(event.subject().as_bytes()));
            (event.member().unwrap().to_owned(), event.at.0)
        }));
    }
    events
}

fn line(post: usize, user: usize, action: &str) -> String {
    format!("{{\"post_id\":\"p{post}\",\"user_id\":\"u{user}\",\"action\":\"{action}\",\"ts\":{user}}}\n")
}

#[tokio::test]
async fn the_last_line_about_a_user_and_a_post_is_last_in_the_log_whatever_fails() {
    let (broker, folder) = (broker(), Folder::new());
    let text: String = (0..300).map(|n| line(n % 3, n % 7, if n % 2 == 0 { "like" } else { "unlike" })).collect();
    // Some sends fail alone, so that later events are in the log before theirs.
    let producer =
        moody(&broker, |send| (send % 50 == 7 && send < 900).then(|| Fault::Transient("no answer".to_owned())));
    assert!(is_whole(&broker, producer, folder.settings(&text)).await.unwrap());
    let said = |value: &[u8]| {
        let event: serde_json::Value = serde_json::from_slice(value).unwrap();
        (event["post_id"].to_string() + &event["user_id"].to_string(), event["action"].to_string())
    };
    let logs = records(&broker.reader("test", "likes")).await.unwrap();
    // All about a post is in one partition, in order.
    let sent: Vec<_> = logs.iter().flat_map(|(_, run)| run.iter()).map(|record| said(record.value.unwrap())).collect();
    assert!(sent.len() > 300, "some were sent again");
    let last: BTreeMap<_, _> = text.lines().map(|line| said(line.as_bytes())).collect();
    assert_eq!(BTreeMap::from_iter(sent), last);
}

#[tokio::test]
async fn an_import_that_failed_goes_on_where_it_ended_and_names_no_wrong_line_twice() {
    let (broker, folder) = (broker(), Folder::new());
    let mut lines: Vec<String> = (0..1_000).map(|n| line(n % 9, n, "like")).collect();
    lines.insert(3, "{\n".to_owned());
    lines.insert(900, "[]\n".to_owned());
    let settings = folder.settings(&lines.concat());
    let producer = moody(&broker, |send| (send >= 400).then(|| Fault::Fatal("denied".to_owned())));
    is_whole(&broker, producer, settings.clone()).await.unwrap_err();
    assert_eq!(events(&broker).await.len(), 399);
    assert!(!imported(&broker, settings.clone()).await.unwrap());
    let mut users: Vec<String> = events(&broker).await.into_iter().map(|(user, _)| user).collect();
    users.sort();
    users.dedup();
    assert_eq!((users.len(), events(&broker).await.len()), (1_000, 1_000));
    // An import was killed while it wrote a line.
    let mut torn = std::fs::OpenOptions::new().append(true).open(folder.0.join("rejected")).unwrap();
    std::io::Write::write_all(&mut torn, b"{").unwrap();
    let there = events(&broker).await.len();
    assert!(!imported(&broker, settings).await.unwrap(), "wrong lines are still wrong");
    assert_eq!(events(&broker).await.len(), there, "nothing is left to send");
    assert_eq!(folder.rejected(), [(4, "not_json".to_owned()), (901, "not_an_object".to_owned())]);
}

#[tokio::test]
async fn a_csv_import_goes_on_behind_any_line() {
    let (broker, folder) = (broker(), Folder::new());
    let text = "user_id,post_id\nu1,p\nu2,p\n";
    let settings =
        ImportArgs { format: Some(Format::Csv), ts: Some(tally_core::time::UnixMillis(5)), ..folder.settings(text) };
    assert!(imported(&broker, settings.clone()).await.unwrap());
    // The file grows.
    folder.settings(&format!("{text}u3,p\n"));
    assert!(imported(&broker, settings).await.unwrap());
    assert_eq!(events(&broker).await, ["u1", "u2", "u3"].map(|user| (user.to_owned(), 5)));
}

#[tokio::test]
async fn a_place_that_belongs_to_another_import_is_refused() {
    let (broker, folder) = (broker(), Folder::new());
    let settings = folder.settings(&line(1, 1, "like"));
    assert!(imported(&broker, settings.clone()).await.unwrap());
    broker.create_topic("likes", PARTITIONS);
    let said = format!("{:#}", imported(&broker, settings.clone()).await.unwrap_err());
    assert!(said.contains("topic id"), "{said}");
    assert_eq!(events(&broker).await, []);
    std::fs::remove_file(settings.progress.as_ref().unwrap()).unwrap();
    assert!(imported(&broker, settings.clone()).await.unwrap());
    let said = format!("{:#}", imported(&broker, folder.settings(&line(2, 2, "like"))).await.unwrap_err());
    assert!(said.contains("first line"), "{said}");
}

#[tokio::test]
async fn a_file_whose_imported_lines_are_others_now_is_refused_and_one_that_grew_sends_only_what_is_new() {
    let (broker, folder) = (broker(), Folder::new());
    let text: String = (0..10).map(|n| line(1, n, "like")).collect();
    let settings = folder.settings(&text);
    assert!(imported(&broker, settings.clone()).await.unwrap());
    // Of the same length and with the same first line, as a later export is.
    folder.settings(&text.replacen("u5", "u6", 1));
    for dry_run in [false, true] {
        let said = imported(&broker, ImportArgs { dry_run, ..settings.clone() }).await.unwrap_err();
        let said = format!("{said:#}");
        assert!(said.contains("the file's first 10 lines are others than those that were imported"), "{said}");
        assert!(said.contains("progress` is of another import: remove it to import from the beginning"), "{said}");
    }
    assert_eq!(events(&broker).await.len(), 10);

    folder.settings(&(text.clone() + &line(1, 11, "like")));
    let mut import = opened(&broker, Arc::new(broker.clone()), settings.clone()).await.unwrap();
    import.run().await.unwrap();
    assert_eq!(import.said(), "1 event sent of 1 line; with earlier runs 11 of 11");

    // The place of an earlier version does not say which bytes were imported.
    let path = settings.progress.clone().unwrap();
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    kept.as_object_mut().unwrap().remove("crc").unwrap();
    std::fs::write(&path, kept.to_string()).unwrap();
    let said = format!("{:#}", imported(&broker, settings).await.unwrap_err());
    assert!(said.contains("missing field `crc`") && said.contains("remove it to import from"), "{said}");
}

#[tokio::test]
async fn an_import_of_something_else_is_given_up_soon() {
    let (broker, folder) = (broker(), Folder::new());
    let text = "this is no event\n".repeat(500);
    let said = imported(&broker, folder.settings(&text)).await.unwrap_err().to_string();
    assert!(said.contains("more than 10 lines are no events") && said.contains("--max-rejected"), "{said}");
    assert_eq!(folder.rejected().len(), 11);
}

#[tokio::test]
async fn a_topic_that_grows_under_an_import_ends_it() {
    let (broker, folder) = (broker(), Folder::new());
    let growing = broker.clone();
    let text: String = (0..200).map(|n| line(n, n, "like")).collect();
    let producer = moody(&broker, move |send| {
        if send == 1 {
            growing.create_topic("likes", PARTITIONS + 3);
        }
        None
    });
    let said = is_whole(&broker, producer, folder.settings(&text)).await.unwrap_err();
    assert!(format!("{said:#}").contains("were partitions added?"), "{said:#}");
}

#[tokio::test(start_paused = true)]
async fn lines_are_sent_at_the_rate_and_an_outage_is_not_made_up_for() {
    let clock = Clock::starting_at(UnixMillis(0));
    let mut pace = Pace { rate: 100, due: clock.reading().at, clock };
    let mut took = async |lines: usize| {
        let began = clock.reading().at;
        for _ in 0..lines / pace.at_once() {
            pace.turn(pace.at_once()).await;
        }
        (clock.reading().at - began).as_millis()
    };
    let first = took(110).await;
    assert!((990..=1_010).contains(&first), "{first} ms");
    clock.sleep(Duration::from_secs(60)).await;
    let again = took(100).await;
    assert!((690..=1_010).contains(&again), "{again} ms");
}
