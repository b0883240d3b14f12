//! `tally prepare`: creates missing tables and topics of a deployment, and prints the lines that start the services.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::json;
use tally_adapters::{dynamodb, kafka};
use tally_consumer::TopicArgs;
use tally_core::changes::DeploymentId;
use tally_core::ports::TopicReader as _;

use crate::change::{Changed, Writing};
use crate::desk::{Desk, TABLES, Where, deployed};
use crate::ended::Usage;
use crate::said::{Answer, counted};

#[derive(clap::Args, Clone, Debug)]
#[command(mut_arg("boards_topic", |arg| arg.default_value("boards")))]
#[command(mut_arg("blocks_topic", |arg| arg.default_value("blocks")))]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,

    /// Partitions of the topic of likes and of the log of changes: enough for years, since keys move when some are added
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT", help_heading = "Topics")]
    partitions: u32,

    /// Replicas of each topic: 3 in production, where two have to have a record before it is acknowledged. By default
    /// what the brokers say
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "COUNT", help_heading = "Topics")]
    replication: Option<u32>,

    #[command(flatten)]
    boards: kafka::BoardsTopic,

    #[command(flatten)]
    blocks: kafka::BlocksTopic,

    #[command(flatten)]
    writing: Writing,
}

/// A topic that the deployment needs.
struct Wanted<'a> {
    name: &'a str,
    partitions: u32,
    /// Whether `--partitions` says how many.
    is_divided: bool,
    /// The flag that names it, if it is one of the lists'.
    flag: Option<&'static str>,
    /// The settings that it is created with. If it exists already, the first `needed` of them are checked.
    configs: Vec<(&'static str, &'static str)>,
    needed: usize,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let start = self.start();
        let desk = Box::pin(Desk::reach(self.of.clone())).await?;
        let settings = desk.kafka()?;
        self.writing.check()?;
        let topics = self.topics(&desk);
        let mut found = Vec::new();
        let mut plan = dynamodb::lacking_tables(&desk.connection).await.context("cannot look at the tables")?;
        let tables_lack = !plan.is_empty();
        let missing_tables = dynamodb::missing_tables(&desk.connection).await.context("cannot look at the tables")?;
        let adoption = adoption(&desk, &missing_tables).await?;
        if !tables_lack {
            found.push("the tables are there".to_owned());
        }
        let (mut missing, mut wrong, mut is_said) = (Vec::new(), Vec::new(), true);
        for topic in topics {
            let reader = desk.reader(topic.name)?;
            let partitions = match reader.exists().await.context("cannot look at the topics")? {
                true => reader.logs().await.context("cannot look at the topics")?.len(),
                false => 0,
            };
            if partitions == 0 {
                plan.push(topic.to_string());
                missing.push(topic);
            } else {
                if topic.name == desk.changes_topic {
                    require_own(&desk, &reader, &missing_tables).await?;
                } else if let Some(flag) = topic.flag {
                    require_lists(&desk, &reader, flag, missing_tables.len() == TABLES).await?;
                }
                found.push(topic.found(partitions));
                // If the brokers do not say it for one topic, they are not asked for the others.
                if is_said {
                    match kafka::topic_settings(settings, topic.name).await {
                        Ok(is) => wrong.extend(topic.wrong(&is)),
                        Err(fault) => {
                            is_said = false;
                            found.push(format!("the settings of topics are not known: {fault}"));
                        }
                    }
                }
            }
        }
        if self.writing.yes && tables_lack {
            // Before the ledger is written: it is in one of these tables.
            dynamodb::ensure_tables(&desk.connection).await.context("cannot create the tables")?;
        }
        if self.writing.yes {
            dynamodb::check_tables(&desk.connection).await.context("the tables are others than they have to be")?;
        }
        let create = async || {
            for topic in &missing {
                kafka::create_topic(settings, topic.name, topic.partitions, self.replication, &topic.configs)
                    .await
                    .context("cannot create a topic")?;
            }
            Ok("created".to_owned())
        };
        let changed = self.writing.carry_out(&desk, "prepare", plan, create).await?;
        let (is_new, next) = adoption.map_or((true, start), |adopt| (false, vec![adopt]));
        Ok(prepared(&changed.with(found), &wrong, is_new, &next))
    }

    /// Returns the topic of lists and that of ids that they leave out; both have defaults.
    fn lists(&self) -> [&str; 2] {
        let given = [self.boards.boards_topic.as_deref(), self.blocks.blocks_topic.as_deref()];
        given.map(|topic| topic.expect("it has a default"))
    }

    /// Returns the topics, as infra/kafka.yaml has them.
    fn topics<'a>(&'a self, desk: &'a Desk) -> Vec<Wanted<'a>> {
        let two: &[_] =
            if self.replication.is_some_and(|replicas| replicas > 2) { &[("min.insync.replicas", "2")] } else { &[] };
        let topic = |name, partitions, needed, configs: &[(&'static str, &'static str)]| Wanted {
            name,
            partitions,
            is_divided: name == desk.topic || name == desk.changes_topic,
            flag: None,
            configs: configs.iter().chain(two).copied().collect(),
            needed,
        };
        let (week, month) = (("retention.ms", "604800000"), ("retention.ms", "2592000000"));
        let (deleted, compacted) = (("cleanup.policy", "delete"), ("cleanup.policy", "compact"));
        // A message has the time at which the broker appended it.
        let appended = ("message.timestamp.type", "LogAppendTime");
        let packed = ("compression.type", "zstd");
        let hours = ("retention.ms", "100800000");
        let soon = ("max.compaction.lag.ms", "600000");
        let [boards, blocks] = self.lists();
        vec![
            topic(&desk.topic, self.partitions, 1, &[deleted, week]),
            topic(&desk.dead_letter_topic, 1, 1, &[deleted, month, ("max.message.bytes", "2097152")]),
            topic(&desk.changes_topic, self.partitions, 2, &[deleted, appended, hours, packed]),
            Wanted { flag: Some("--boards-topic"), ..topic(boards, 3, 1, &[compacted, soon]) },
            Wanted { flag: Some("--blocks-topic"), ..topic(blocks, 1, 1, &[compacted]) },
        ]
    }

    /// Returns the lines that start the services, and export the settings of this command that the shell does not have.
    fn start(&self) -> Vec<String> {
        let Where { store, kafka, topics, changes, .. } = &self.of;
        let TopicArgs { likes, group, dead_letter_topic } = topics;
        let shards = store.shards.map(|shards| shards.to_string());
        // One with a prefix may have others beside it, and no two of them may write one log of changes.
        let is_only = store.table_prefix.is_empty();
        let given = [
            ("TALLY_BROKERS", kafka.brokers.as_deref(), ""),
            ("TALLY_TABLE_PREFIX", Some(store.table_prefix.as_str()), ""),
            ("TALLY_SHARDS", shards.as_deref(), ""),
            ("TALLY_TOPIC", Some(likes.topic.as_str()), "likes"),
            ("TALLY_CHANGES_TOPIC", Some(changes.changes_topic.as_str()), if is_only { "changes" } else { "" }),
            ("TALLY_DEAD_LETTER_TOPIC", dead_letter_topic.as_deref(), ""),
            ("TALLY_GROUP", group.as_deref(), ""),
        ];
        let mut lines = Vec::new();
        for (name, value, default) in given {
            let shell = std::env::var(name).unwrap_or_default();
            if let Some(value) = value.filter(|value| *value != default && *value != shell) {
                lines.push(format!("export {name}={}", quoted(value)));
            }
        }
        let login = [("TALLY_TLS", kafka.tls), ("TALLY_SASL", kafka.sasl.is_some())];
        if login.iter().any(|(name, given)| *given && std::env::var_os(name).is_none()) {
            lines.push("# export TALLY_TLS, TALLY_SASL and the like, as this command was given them".to_owned());
        }
        let [boards_topic, blocks_topic] = self.lists();
        lines.extend([
            "tally-change-streamer".to_owned(),
            "tally-consumer".to_owned(),
            "tally-batch-recount --watch".to_owned(),
            format!("tally-trends --boards-topic {boards_topic} --windows 10m,1h"),
            format!(
                "tally-count-api --listen 127.0.0.1:8080 --open-writes --boards-topic {boards_topic} --blocks-topic {blocks_topic}"
            ),
        ]);
        lines
    }
}

/// Returns the command that goes on with empty tables, if tables that the deployment had are gone or replaced.
async fn adoption(desk: &Desk, missing: &[String]) -> anyhow::Result<Option<String>> {
    let tables = desk.connection.tables();
    let is_lost = missing.contains(&tables.checkpoints);
    let is_new = match missing.len() {
        TABLES => true,
        _ if is_lost => false,
        // Without a configuration, the missing tables may never have been there: `checkpoints` is created first.
        _ => {
            deployed(&desk.checkpoints).await?.is_none()
                || desk.checkpoints.seen_tables().await.context("cannot look at the tables")?.is_whole()
        }
    };
    let prefix = match tables.prefix.as_str() {
        "" => String::new(),
        prefix => format!(" --table-prefix {}", quoted(prefix)),
    };
    let shards = if is_lost { " --shards N" } else { "" };
    Ok((!is_new).then(|| format!("tally adopt tables{prefix}{shards} --yes --why ..")))
}

/// Checks that the existing log of changes is not another deployment's. Without the table `checkpoints` this cannot be
/// told, and passes.
async fn require_own(desk: &Desk, reader: &kafka::TopicReader, missing: &[String]) -> anyhow::Result<()> {
    let own = match (missing.len(), missing.contains(&desk.connection.tables().checkpoints)) {
        (TABLES, _) => None,
        (_, true) => return Ok(()),
        _ => desk.changes.config().await.context("cannot read the configuration of the log of changes")?,
    };
    // Before a change-streamer has begun the log, every message in it is another deployment's.
    let own = own.map_or_else(|| DeploymentId("".into()), |config| config.deployment);
    match kafka::foreign_log(reader, &own).await.context("cannot read the log of changes")? {
        None => Ok(()),
        Some(problem) => Err(Usage(format!("{problem}, by --changes-topic")).into()),
    }
}

/// Checks that the existing topic of boards or blocks is not another deployment's: that its last records name no other
/// one. Before there are tables, every record is another deployment's. Without the table `likes` alone, this cannot be
/// told, and passes.
async fn require_lists(desk: &Desk, reader: &kafka::TopicReader, flag: &str, is_new: bool) -> anyhow::Result<()> {
    let last = kafka::last_records(reader).await.context("cannot read the topics of lists")?;
    let other = last.iter().find_map(|(partition, records)| {
        let record = records.iter().last()?;
        let other = match desk.deployment() {
            _ if is_new => record.deployment().unwrap_or("which it does not name".into()),
            own => record.foreign(own.ok()?)?,
        };
        Some(kafka::shared(&partition.topic, &other))
    });
    other.map_or(Ok(()), |problem| Err(Usage(format!("{problem}, by {flag}")).into()))
}

/// Says what was changed, which settings of existing topics are `wrong`, and what to run `next`: the services or, if the
/// deployment has lost tables, the command that goes on without them.
fn prepared(changed: &Changed, wrong: &[String], is_new: bool, next: &[String]) -> Answer {
    let mut text = changed.text();
    for wrong in wrong {
        text.push_str(&format!("\nWRONG  {wrong}"));
    }
    let lines = next.join("\n  ");
    if !is_new {
        let those = "tables of this deployment are gone or replaced. \
                     Restore them; or, once they are created empty, go on with";
        text.push_str(&format!("\n\n{those}:\n\n  {lines}\n\nsee \"When something is lost\" in docs/operate.md"));
    } else if !changed.is_left() {
        text.push_str("\n\nthe services start with, each as a process of its own:\n");
        text.push_str(&format!("\n  {lines}\n\nthen: tally status"));
    }
    let mut json = json!(changed);
    json["wrong"] = json!(wrong);
    json[if is_new { "start" } else { "next" }] = json!(next);
    Answer::new(json, text).wrong_if(!wrong.is_empty() || !is_new)
}

impl std::fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let configs: Vec<String> = self.configs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let partitions = counted(u64::from(self.partitions), "partition");
        write!(f, "create topic {}, {partitions}, {}", self.name, configs.join(" "))
    }
}

impl Wanted<'_> {
    /// Says that the topic is there already.
    fn found(&self, partitions: usize) -> String {
        let there = format!("topic {} is there, with {}", self.name, counted(partitions as u64, "partition"));
        if partitions == self.partitions as usize || !self.is_divided {
            return there;
        }
        format!("{there}, and stays so: --partitions {} is for a topic that is created", self.partitions)
    }

    /// Compares the `settings` of the existing topic with those that are needed. Returns a line for each that is wrong.
    fn wrong(&self, settings: &BTreeMap<String, String>) -> Vec<String> {
        let needed = self.configs.iter().take(self.needed);
        let wrong = needed.filter_map(|(key, value)| {
            let is = settings.get(*key).filter(|is| !is.split(',').any(|is| is.trim() == *value))?;
            Some(format!("topic {}: {key} is {is}, and has to be {value}", self.name))
        });
        wrong.collect()
    }
}

/// Quotes a value for a shell, where needed.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:,/@+-".contains(&byte);
    if value.bytes().all(is_plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}
