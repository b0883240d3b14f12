//! The consumer's configuration: each setting checked, alone and against the others, before the first connection.

use std::time::Duration;

use tally_adapters::{dynamodb, kafka};
use tally_core::register::Progress;
use tally_service::Invalid;

use crate::args::{Args, Command, ReadSettings};

/// More than any store answers at once.
const MAX_CONCURRENCY: usize = 10_000;

/// Longer than a request or a record of a living process can be late.
const LEAST_TOMBSTONES: Duration = Duration::from_hours(1);

#[derive(Clone, Debug)]
pub struct Config {
    /// An operator's command, instead of consuming.
    pub command: Option<Command>,
    /// How Kafka is reached.
    pub kafka: kafka::Settings,
    /// How the tables are reached.
    pub store: dynamodb::Settings,
    pub settings: ReadSettings,
}

/// The group of a deployment that is not told another: two deployments in one group would share its topic out between
/// them, and each would miss what the other takes.
pub fn group_of(table_prefix: &str) -> String {
    format!("{table_prefix}tally-consumer")
}

impl Config {
    /// The group whose members share the topic's partitions.
    pub(crate) fn group(&self) -> String {
        self.settings.group.clone().unwrap_or_else(|| group_of(&self.store.table_prefix))
    }
}

/// Where the dead letters of `topic` are, in a deployment whose own topic has them in another one: its consumer is started as that
/// one is, and where that one was told nothing, the name follows from the topic's.
pub(crate) fn letters_of(topic: &str, own: &str, letters: &str) -> String {
    if topic == own || letters != letters_of_unless_told(own) {
        return letters.to_owned();
    }
    letters_of_unless_told(topic)
}

/// Where the dead letters of `topic` are, unless another topic is given.
pub(crate) fn letters_of_unless_told(topic: &str) -> String {
    format!("{topic}.dlq")
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let Args { command, kafka, store, read, .. } = args;
        let mut invalid = Invalid::none();
        invalid.ensure("batch-rows", (1..=Progress::STATEMENTS).contains(&read.batch_rows), "must be 1 to 25");
        invalid.ensure("batch-bytes", read.batch_bytes > 0, "must be more than nothing");
        invalid.ensure("concurrency", (1..=MAX_CONCURRENCY).contains(&read.concurrency), "must be 1 to 10000");
        invalid.ensure("tombstones", read.tombstones >= LEAST_TOMBSTONES, "must be at least an hour");
        invalid.ensure("linger", read.linger <= Duration::from_secs(60), "must be at most a minute");
        let letters = read.letters();
        invalid.ensure("dead-letter-topic", letters != read.topic, "is the topic of likes itself");
        invalid.accept("dead-letter-topic", kafka::topic(&letters));
        match kafka::Settings::try_from(kafka).map_err(|other| invalid.extend(other)) {
            Ok(kafka) if invalid.is_empty() => Ok(Self {
                command,
                kafka,
                settings: ReadSettings { shards: store.shards, ..read },
                store: dynamodb::Settings { table_prefix: store.table_prefix, ..dynamodb::Settings::default() },
            }),
            _ => Err(invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(args: &[&str]) -> Result<Config, Invalid> {
        let args = std::iter::once(&"tally-consumer").chain(args);
        Config::try_from(Args::try_parse_from(args).expect("the arguments are known"))
    }

    #[test]
    fn the_dead_letter_topic_is_named_after_the_topic() {
        let config = config(&["--brokers", "b:9092", "--topic", "likes2"]).unwrap();
        assert_eq!(config.settings.letters(), "likes2.dlq");
        assert!(config.command.is_none());
    }

    #[test]
    fn a_group_belongs_to_its_deployment_unless_another_is_named() {
        let group = |args: &[&str]| config(&[&["--brokers", "b:9092"], args].concat()).unwrap().group();
        assert_eq!(group(&[]), "tally-consumer");
        assert_eq!(group(&["--table-prefix", "blue-"]), "blue-tally-consumer");
        assert_eq!(group(&["--table-prefix", "blue-", "--group", "g"]), "g");
    }

    #[test]
    fn a_counters_own_topic_has_letters_of_its_own_unless_one_topic_was_named_for_all() {
        assert_eq!(letters_of("likes", "likes", "bad"), "bad");
        assert_eq!(letters_of("views", "likes", "likes.dlq"), "views.dlq");
        assert_eq!(letters_of("views", "likes", "bad"), "bad");
    }

    #[test]
    fn a_dead_letter_topic_whose_name_would_be_too_long_is_refused() {
        let long = "x".repeat(246);
        let said = config(&["--brokers", "b:9092", "--topic", &long]).unwrap_err().to_string();
        assert!(said.starts_with("--dead-letter-topic"), "{said}");
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let bad = [
            "--batch-rows",
            "26",
            "--tombstones",
            "59m",
            "--concurrency",
            "0",
            "--sasl",
            "plain",
            "--tls-key",
            "/nowhere",
        ];
        let said = config(&bad).unwrap_err().to_string();
        for flag in [
            "brokers",
            "batch-rows",
            "tombstones",
            "concurrency",
            "sasl-user",
            "sasl-password",
            "tls-key",
            "tls-certificate",
        ] {
            assert!(said.contains(&format!("--{flag} ")), "{flag}: {said}");
        }
    }

    #[test]
    fn a_number_outside_its_bounds_is_refused_and_named() {
        let most = usize::MAX.to_string();
        for bad in [["--concurrency", &most], ["--concurrency", "0"], ["--batch-rows", "0"], ["--batch-bytes", "0"]] {
            let said = config(&["--brokers", "b:9092", bad[0], bad[1]]).unwrap_err().to_string();
            assert!(said.contains(bad[0]), "{bad:?}: {said}");
        }
        assert!(config(&["--brokers", "b:9092", "--concurrency", "10000"]).is_ok());
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for (args, flag) in [
            (["--dead-letter-topic", "likes"], "--dead-letter-topic"),
            (["--sasl-user", "u"], "--sasl-user"),
            (["--msk-region", "eu-west-1"], "--msk-region"),
        ] {
            let said =
                config(&[&["--brokers", "b:9092"], &args[..]].concat()).expect_err("a contradiction").to_string();
            assert!(said.contains(flag), "{args:?}: {said}");
        }
    }

    #[test]
    fn a_password_is_in_no_message_and_no_debug_output() {
        let args = ["--brokers", "b:9092", "--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary-7"];
        assert!(!format!("{:?}", config(&args).unwrap()).contains("canary-7"));
        let args: Vec<&str> = args.into_iter().chain(["--batch-rows", "0"]).collect();
        assert!(!config(&args).unwrap_err().to_string().contains("canary-7"));
    }
}
