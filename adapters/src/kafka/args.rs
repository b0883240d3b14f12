//! The arguments that say where Kafka is and how to log in, the same for every binary. Here they are checked against
//! each other, and become librdkafka's settings.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum, ValueHint};
use rdkafka::ClientConfig;
use tally_service::{Invalid, Secret, SecretFile};

/// The longest name of a topic.
const TOPIC_BYTES: usize = 249;

/// Where Kafka is and how to log in.
///
/// A binary states in its own arguments what it uses brokers for, and whether it needs them:
/// `#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, ..; required")))]`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Kafka", about = None, long_about = None)]
pub struct KafkaArgs {
    /// Bootstrap servers, HOST:PORT separated by commas
    #[arg(long, env = "TALLY_BROKERS", value_parser = tally_service::text(), value_name = "LIST")]
    pub brokers: Option<String>,

    /// Connect to the brokers by TLS
    #[arg(long, env = "TALLY_TLS")]
    pub tls: bool,

    /// Certificates to trust, PEM. By default the system's
    #[arg(long, env = "TALLY_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// The client certificate, PEM
    #[arg(long, env = "TALLY_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// The key of the client certificate, PEM
    #[arg(long, env = "TALLY_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// How to log in to the brokers
    #[arg(long, env = "TALLY_SASL", value_enum, value_name = "MECHANISM")]
    pub sasl: Option<Mechanism>,

    /// The user to log in as
    #[arg(long, env = "TALLY_SASL_USER", value_parser = tally_service::text(), value_name = "USER")]
    pub sasl_user: Option<String>,

    /// The user's password. A flag is visible to other users of the machine: prefer the variable or the file
    #[arg(long, env = "TALLY_SASL_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    pub sasl_password: Option<Secret>,

    /// A file with the user's password
    #[arg(long, env = "TALLY_SASL_PASSWORD_FILE", value_parser = PathBufValueParser::new().map(SecretFile::from), value_hint = ValueHint::AnyPath, value_name = "FILE")]
    pub sasl_password_file: Option<SecretFile>,

    /// The AWS region of the MSK cluster
    #[arg(long, env = "TALLY_MSK_REGION", value_parser = tally_service::text(), value_name = "REGION")]
    pub msk_region: Option<String>,
}

/// The topic of likes.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Topics", about = None, long_about = None)]
pub struct LikesTopic {
    /// The topic of likes, and of each counter whose definition names no other
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = topic, value_name = "TOPIC")]
    pub topic: String,
}

/// The log of changes.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Topics", about = None, long_about = None)]
pub struct ChangesTopic {
    /// The log of changes: a topic of this deployment alone, with a fixed number of partitions
    #[arg(long, env = "TALLY_CHANGES_TOPIC", default_value = "changes", value_parser = topic, value_name = "TOPIC")]
    pub changes_topic: String,
}

/// The topic of lists of what is trending.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Topics", about = None, long_about = None)]
pub struct BoardsTopic {
    /// The topic of lists of what is trending: compacted, and of this deployment alone
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = topic, value_name = "TOPIC")]
    pub boards_topic: Option<String>,
}

/// The topic of ids that lists leave out.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Topics", about = None, long_about = None)]
pub struct BlocksTopic {
    /// The topic of ids that lists of what is trending leave out: compacted; an id is a key, and blocked while it has a
    /// value that is not empty
    #[arg(long, env = "TALLY_BLOCKS_TOPIC", value_parser = topic, value_name = "TOPIC")]
    pub blocks_topic: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mechanism {
    /// User and password in plain text
    Plain,
    /// A proof of the password, with SHA-256
    ScramSha256,
    /// A proof of the password, with SHA-512
    ScramSha512,
    /// AWS credentials of the environment
    MskIam,
}

/// Where Kafka is and how to connect. librdkafka's own settings show no password.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What every client is configured with.
    pub(super) client: ClientConfig,
    /// The region of an MSK cluster that takes AWS credentials.
    pub(super) msk_region: Option<String>,
}

impl Settings {
    /// Brokers without encryption or login.
    pub fn plaintext(brokers: &str) -> Self {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", brokers).set("client.id", "tally").set("security.protocol", "plaintext");
        client.set("socket.keepalive.enable", "true").set("reconnect.backoff.max.ms", "5000");
        Self { client, msk_region: None }
    }

    /// Returns librdkafka's setting of this name.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.client.get(name)
    }
}

impl KafkaArgs {
    /// Returns the settings, if any argument is given. Arguments without brokers are a mistake.
    ///
    /// # Errors
    /// Every mistake.
    pub fn optional(&self) -> Result<Option<Settings>, Invalid> {
        if *self == Self::default() { Ok(None) } else { self.settings().map(Some) }
    }

    /// Returns the settings. Brokers have to be named.
    ///
    /// # Errors
    /// Every mistake.
    pub fn settings(&self) -> Result<Settings, Invalid> {
        let mut invalid = Invalid::none();
        let brokers = invalid.require("brokers", self.brokers.as_deref());
        if let Some(brokers) = brokers {
            let _ = invalid.accept("brokers", check_brokers(brokers));
        }
        let mut settings = Settings::plaintext(brokers.unwrap_or_default());
        tls(self, &mut settings.client, &mut invalid);
        log_in(self, &mut settings.client, &mut invalid);
        settings.client.set(
            "security.protocol",
            match (self.tls, self.sasl.is_some()) {
                (false, false) => "plaintext",
                (true, false) => "ssl",
                (false, true) => "sasl_plaintext",
                (true, true) => "sasl_ssl",
            },
        );
        settings.msk_region.clone_from(&self.msk_region);
        if invalid.is_empty() { Ok(settings) } else { Err(invalid) }
    }
}

/// Checks a list of bootstrap servers.
///
/// # Errors
/// What it has to look like.
pub fn check_brokers(list: &str) -> Result<(), &'static str> {
    if list.split(',').all(is_address) { Ok(()) } else { Err("every broker is HOST:PORT") }
}

/// Checks the name of a topic as Kafka does. A clap `value_parser`.
///
/// # Errors
/// What a name may have.
pub fn topic(text: &str) -> Result<String, &'static str> {
    let legal = (1..=TOPIC_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && ![".", ".."].contains(&text);
    if legal { Ok(text.to_owned()) } else { Err("a topic's name is at most 249 letters, digits and ._-") }
}

fn is_address(broker: &str) -> bool {
    let port = broker.rsplit_once(':').filter(|(host, _)| !host.trim().is_empty());
    port.is_some_and(|(_, port)| port.trim().parse::<u16>().is_ok_and(|port| port > 0))
}

fn tls(args: &KafkaArgs, client: &mut ClientConfig, invalid: &mut Invalid) {
    for (flag, setting, file) in [
        ("tls-ca", "ssl.ca.location", &args.tls_ca),
        ("tls-certificate", "ssl.certificate.location", &args.tls_certificate),
        ("tls-key", "ssl.key.location", &args.tls_key),
    ] {
        let Some(file) = file else { continue };
        invalid.ensure(flag, args.tls, "contradicts a connection without --tls");
        invalid.ensure(flag, file.is_file(), format!("there is no file `{}`", file.display()));
        client.set(setting, file.to_string_lossy());
    }
    let (certificate, key) = (args.tls_certificate.is_some(), args.tls_key.is_some());
    invalid.ensure("tls-key", key || !certificate, "missing, while --tls-certificate is given");
    invalid.ensure("tls-certificate", certificate || !key, "missing, while --tls-key is given");
}

fn log_in(args: &KafkaArgs, client: &mut ClientConfig, invalid: &mut Invalid) {
    let mechanism = args.sasl.map(|mechanism| match mechanism {
        Mechanism::Plain => "PLAIN",
        Mechanism::ScramSha256 => "SCRAM-SHA-256",
        Mechanism::ScramSha512 => "SCRAM-SHA-512",
        Mechanism::MskIam => "OAUTHBEARER",
    });
    let by_iam = args.sasl == Some(Mechanism::MskIam);
    let by_password = mechanism.is_some() && !by_iam;
    let given = [
        ("sasl-user", args.sasl_user.is_some()),
        ("sasl-password", args.sasl_password.is_some()),
        ("sasl-password-file", args.sasl_password_file.is_some()),
    ];
    for (flag, given) in given {
        invalid.ensure(flag, by_password || !given, "contradicts a login without user and password (--sasl)");
    }
    invalid.ensure("msk-region", by_iam || args.msk_region.is_none(), "contradicts a login that is not msk-iam");
    if let Some(mechanism) = mechanism {
        client.set("sasl.mechanism", mechanism);
    }
    if by_iam {
        invalid.ensure("tls", args.tls, "missing, while --sasl msk-iam needs it");
        invalid.require("msk-region", args.msk_region.clone());
    }
    if by_password {
        let user = invalid.require("sasl-user", args.sasl_user.clone()).unwrap_or_default();
        let password = password(args, invalid);
        client.set("sasl.username", user);
        client.set("sasl.password", password.as_ref().map_or("", Secret::expose));
    }
}

fn password(args: &KafkaArgs, invalid: &mut Invalid) -> Option<Secret> {
    match (&args.sasl_password, &args.sasl_password_file) {
        (Some(_), Some(_)) => {
            invalid.add("sasl-password-file", "contradicts --sasl-password");
            None
        }
        (Some(password), None) => Some(password.clone()),
        (None, Some(file)) => invalid.accept("sasl-password-file", file.secret()),
        (None, None) => invalid.require("sasl-password", None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::kafka::Producer;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        kafka: KafkaArgs,
    }

    fn args(args: &[&str]) -> KafkaArgs {
        Line::try_parse_from(std::iter::once(&"line").chain(args)).expect("the arguments are known").kafka
    }

    fn settings(line: &[&str]) -> Result<Settings, String> {
        let line = [&["--brokers", "b:9092"], line].concat();
        args(&line).settings().map_err(|invalid| invalid.to_string())
    }

    /// Returns which brokers are connected to, and how.
    fn spoken(settings: &Settings) -> [Option<&str>; 3] {
        ["bootstrap.servers", "security.protocol", "sasl.mechanism"].map(|name| settings.option(name))
    }

    const BY_PASSWORD: [&str; 6] = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary-7"];

    #[test]
    fn encryption_and_login_choose_the_protocol_and_each_way_is_in_this_build() {
        let scram = |line: &[&'static str]| [line, &["--sasl-user", "u", "--sasl-password", "p"]].concat();
        let msk = ["--tls", "--sasl", "msk-iam", "--msk-region", "eu-west-1"];
        for (line, protocol, mechanism) in [
            (vec![], "plaintext", None),
            (vec!["--tls"], "ssl", None),
            (BY_PASSWORD.to_vec(), "sasl_plaintext", Some("PLAIN")),
            (scram(&["--sasl", "scram-sha256"]), "sasl_plaintext", Some("SCRAM-SHA-256")),
            (scram(&["--tls", "--sasl", "scram-sha512"]), "sasl_ssl", Some("SCRAM-SHA-512")),
            (msk.to_vec(), "sasl_ssl", Some("OAUTHBEARER")),
        ] {
            let settings = settings(&line).unwrap();
            assert_eq!(spoken(&settings), [Some("b:9092"), Some(protocol), mechanism]);
            // librdkafka refuses what it was built without.
            Producer::new(&settings).expect("a client");
        }
    }

    #[test]
    fn where_kafka_is_optional_no_argument_is_none_and_any_argument_needs_brokers() {
        assert!(args(&[]).optional().unwrap().is_none());
        let brokers = args(&["--brokers", "b:9092"]).optional().unwrap().unwrap();
        assert_eq!(spoken(&brokers), [Some("b:9092"), Some("plaintext"), None]);
        for line in [&["--tls"][..], &["--sasl", "msk-iam"], &BY_PASSWORD, &["--msk-region", "eu-west-1"]] {
            let said = args(line).optional().unwrap_err().to_string();
            assert!(said.contains("--brokers (TALLY_BROKERS): missing"), "{line:?}: {said}");
        }
    }

    #[test]
    fn every_broker_is_a_host_and_a_port() {
        for good in ["b:9092", "a:1,b:65535", "[::1]:9092", "a:1, b:2"] {
            assert!(args(&["--brokers", good]).settings().is_ok(), "{good}");
        }
        for bad in ["b", "b:", ":9092", "b:0", "b:65536", "a:1,", "a:1,b"] {
            let said = args(&["--brokers", bad]).settings().unwrap_err().to_string();
            assert!(said.contains("--brokers") && said.contains("HOST:PORT"), "{bad}: {said}");
        }
    }

    #[test]
    fn a_topic_has_a_name_that_kafka_takes() {
        for good in ["likes", "likes.dlq", "a_b-C.9", "...", &"x".repeat(249)] {
            assert!(topic(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", "a#b", "a,b", &"x".repeat(250)] {
            assert!(topic(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_and_named() {
        let login = |more: &[&'static str]| [&BY_PASSWORD, more].concat();
        let contradictions: [(&[&str], &str); 9] = [
            (&["--sasl-user", "u"], "--sasl-user"),
            (&["--sasl-password", "p"], "--sasl-password"),
            (&["--msk-region", "eu-west-1"], "--msk-region"),
            (&["--tls-ca", "/etc/hostname"], "--tls-ca"),
            (&["--tls", "--tls-key", "/etc/hostname"], "--tls-certificate"),
            (&["--sasl", "plain"], "--sasl-user"),
            (&["--sasl", "msk-iam"], "--tls"),
            (&login(&["--msk-region", "r"]), "--msk-region"),
            (&login(&["--sasl-password-file", "/f"]), "--sasl-password-file"),
        ];
        for (line, flag) in contradictions {
            let said = settings(line).expect_err("a contradiction");
            assert!(said.contains(&format!("{flag} (")), "{line:?}: {said}");
        }
    }

    #[test]
    fn a_password_is_read_from_its_file_and_is_in_no_message_and_no_debug_output() {
        let file = std::env::temp_dir().join(format!("tally-kafka-password-{}", std::process::id()));
        std::fs::write(&file, "canary-7\n").unwrap();
        let line = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password-file", file.to_str().unwrap()];
        let (read, given) = (settings(&line), settings(&BY_PASSWORD));
        std::fs::remove_file(&file).unwrap();
        for settings in [read, given] {
            let settings = settings.unwrap();
            assert_eq!(
                ["sasl.username", "sasl.password"].map(|name| settings.option(name)),
                [Some("u"), Some("canary-7")]
            );
            assert!(!format!("{settings:?} {:?}", args(&BY_PASSWORD)).contains("canary-7"));
        }
        let wrong = args(&[&BY_PASSWORD, &["--tls-ca", "/nowhere"][..]].concat());
        assert!(!wrong.settings().unwrap_err().to_string().contains("canary-7"));
    }
}
