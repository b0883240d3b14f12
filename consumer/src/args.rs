//! The consumer's arguments, which are its configuration. Each is checked, alone and against the others, before the
//! first connection.

use std::time::Duration;

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs, LikesTopic};
use tally_core::register::Progress;
use tally_service::{Arguments, CommonArgs, Invalid, StoreArgs, duration, within};

/// The most that `--concurrency` may be: more than any store answers at once.
const MAX_CONCURRENCY: usize = 10_000;

/// The least that `--tombstones` may be: a request or a record of a living process is never this late.
const LEAST_TOMBSTONES: Duration = Duration::from_hours(1);

/// Writes the likes in Kafka as rows of the likes table, each exactly once
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-consumer", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9091")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,

    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) read: ReadSettings,
}

/// How the topic is read and its rows are written.
#[derive(clap::Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct ReadSettings {
    #[command(flatten)]
    pub topics: TopicArgs,

    /// How long a record may wait in a batch before the batch is written
    #[arg(long, env = "TALLY_LINGER", default_value = "20ms", value_parser = duration(|span| span <= Duration::from_secs(60), "must be at most a minute"), value_name = "SPAN", help_heading = "Batches")]
    pub linger: Duration,

    /// The most rows one request changes: 1 to 25
    #[arg(long, env = "TALLY_BATCH_ROWS", default_value_t = 25, value_parser = within(1..=Progress::STATEMENTS), value_name = "COUNT", help_heading = "Batches")]
    pub batch_rows: usize,

    /// The most bytes of records one batch holds
    #[arg(long, env = "TALLY_BATCH_BYTES", default_value_t = 1 << 20, value_parser = within::<usize>(1..), value_name = "BYTES", help_heading = "Batches")]
    pub batch_bytes: usize,

    /// The most requests under way at once, over all partitions
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 64, value_parser = within(1..=MAX_CONCURRENCY), value_name = "COUNT", help_heading = "Batches")]
    pub concurrency: usize,

    /// How long the row of a removed member is kept, so that a late copy of an earlier event cannot bring the member
    /// back: at least `1h`
    #[arg(long, env = "TALLY_TOMBSTONES", default_value = "24h", value_parser = duration(|span| span >= LEAST_TOMBSTONES, "must be at least an hour"), value_name = "SPAN", help_heading = "Rows")]
    pub tombstones: Duration,
}

/// The topics of a deployment's consumers, and their group.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Topics", about = None, long_about = None)]
pub struct TopicArgs {
    #[command(flatten)]
    pub likes: LikesTopic,

    /// The topic for records that are not valid events. By default the topic's name followed by `.dlq`
    #[arg(long, env = "TALLY_DEAD_LETTER_TOPIC", value_parser = kafka::topic, value_name = "TOPIC")]
    pub dead_letter_topic: Option<String>,

    /// The group whose members share the topic's partitions, all of one deployment. By default the table prefix followed
    /// by `tally-consumer`
    #[arg(long, env = "TALLY_GROUP", value_parser = tally_service::text(), value_name = "GROUP")]
    pub group: Option<String>,
}

impl TopicArgs {
    /// Returns the topic of dead letters.
    pub fn letters(&self) -> String {
        self.dead_letter_topic.clone().unwrap_or_else(|| letters_of(&self.likes.topic))
    }

    /// Returns the group of a deployment with these tables.
    pub fn group(&self, table_prefix: &str) -> String {
        self.group.clone().unwrap_or_else(|| group_of(table_prefix))
    }
}

/// Returns the group of a deployment that is given no other. Two deployments in one group would share the topic out
/// between them, and each would miss what the other takes.
pub fn group_of(table_prefix: &str) -> String {
    format!("{table_prefix}tally-consumer")
}

/// Returns the topic of the dead letters of `topic`, unless another one is given.
pub fn letters_of(topic: &str) -> String {
    format!("{topic}.dlq")
}

/// The defaults of the command line.
impl Default for ReadSettings {
    fn default() -> Self {
        tally_service::defaults()
    }
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let Self { kafka, read, .. } = self;
        let mut invalid = Invalid::none();
        let letters = read.topics.letters();
        invalid.ensure("dead-letter-topic", letters != read.topics.likes.topic, "is the topic of likes itself");
        invalid.accept("dead-letter-topic", kafka::topic(&letters));
        invalid.gather(kafka.settings());
        invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    #[test]
    fn a_group_belongs_to_its_deployment_unless_another_is_named() {
        let group = |args: &[&str]| {
            let args = Args::checked(&[&["--brokers", "b:9092"], args].concat()).unwrap();
            args.read.topics.group(&args.store.table_prefix)
        };
        assert_eq!(group(&[]), "tally-consumer");
        assert_eq!(group(&["--table-prefix", "blue-"]), "blue-tally-consumer");
        assert_eq!(group(&["--table-prefix", "blue-", "--group", "g"]), "g");
    }

    #[test]
    fn a_dead_letter_topic_that_is_the_topic_or_whose_name_would_be_too_long_is_refused() {
        for bad in [["--topic", &"x".repeat(246)], ["--dead-letter-topic", "likes"]] {
            let said = Args::checked(&["--brokers", "b:9092", bad[0], bad[1]]).unwrap_err();
            assert!(said.starts_with("--dead-letter-topic"), "{said}");
        }
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let bad = "--linger soon --batch-rows 26 --batch-bytes 0 --tombstones 59m --concurrency 10001 --sasl plain --tls-key /nowhere";
        let said = Args::checked(&bad.split(' ').collect::<Vec<_>>()).unwrap_err();
        let named = "brokers linger batch-rows batch-bytes tombstones concurrency sasl-user sasl-password tls-key tls-certificate";
        for flag in named.split(' ') {
            assert!(said.contains(&format!("--{flag} ")), "{flag}: {said}");
        }
        for flag in ["--concurrency", "--batch-rows"] {
            assert!(Args::checked(&["--brokers", "b:9092", flag, "0"]).unwrap_err().contains(flag));
        }
    }
}
