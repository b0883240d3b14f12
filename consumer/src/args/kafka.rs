//! How Kafka is reached: the arguments, and their check against each other and against what this build can do.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tally_adapters::kafka::{self, Credentials, Sasl, Security, Settings, Tls};
use tally_service::{Invalid, Secret};

/// Where Kafka is and how to log in.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kafka")]
pub struct KafkaArgs {
    /// Bootstrap servers, HOST:PORT separated by commas; required
    #[arg(long, env = "TALLY_BROKERS", value_parser = tally_service::text(), value_name = "LIST")]
    pub brokers: Option<String>,

    /// Speak TLS to the brokers
    #[arg(long, env = "TALLY_TLS")]
    pub tls: bool,

    /// Certificates to trust, PEM; the system's unless said otherwise
    #[arg(long, env = "TALLY_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// The certificate to show to the brokers, PEM
    #[arg(long, env = "TALLY_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// The key of that certificate, PEM
    #[arg(long, env = "TALLY_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// How to log in
    #[arg(long, env = "TALLY_SASL", value_enum, value_name = "MECHANISM")]
    pub sasl: Option<Mechanism>,

    /// The user to log in as
    #[arg(long, env = "TALLY_SASL_USER", value_parser = tally_service::text(), value_name = "USER")]
    pub sasl_user: Option<String>,

    /// The user's password; better given as a variable or a file
    #[arg(long, env = "TALLY_SASL_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    pub sasl_password: Option<Secret>,

    /// A file with the user's password
    #[arg(long, env = "TALLY_SASL_PASSWORD_FILE", value_name = "FILE")]
    pub sasl_password_file: Option<PathBuf>,

    /// The AWS region of the MSK cluster
    #[arg(long, env = "TALLY_MSK_REGION", value_parser = tally_service::text(), value_name = "REGION")]
    pub msk_region: Option<String>,
}

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mechanism {
    /// User and password as they are
    Plain,
    /// A proof of the password, with SHA-256
    ScramSha256,
    /// A proof of the password, with SHA-512
    ScramSha512,
    /// AWS credentials of the environment
    MskIam,
}

impl TryFrom<KafkaArgs> for Settings {
    type Error = Invalid;

    fn try_from(args: KafkaArgs) -> Result<Self, Invalid> {
        let mut invalid = Invalid::none();
        let brokers = invalid.require("brokers", args.brokers.clone());
        if let Some(brokers) = &brokers {
            let wrong = brokers.split(',').find(|broker| !is_address(broker));
            invalid.ensure("brokers", wrong.is_none(), "every broker is HOST:PORT");
        }
        let tls = tls(&args, &mut invalid);
        let sasl = sasl(&args, &mut invalid);
        match brokers {
            Some(brokers) if invalid.is_empty() => Ok(Self { brokers, security: Security { tls, sasl } }),
            _ => Err(invalid),
        }
    }
}

fn is_address(broker: &str) -> bool {
    let port = broker.rsplit_once(':').filter(|(host, _)| !host.trim().is_empty());
    port.is_some_and(|(_, port)| port.trim().parse::<u16>().is_ok_and(|port| port > 0))
}

fn tls(args: &KafkaArgs, invalid: &mut Invalid) -> Option<Tls> {
    invalid.ensure("tls", !args.tls || kafka::TLS, "this build speaks no TLS: build it with the feature `tls`");
    for (flag, file) in
        [("tls-ca", &args.tls_ca), ("tls-certificate", &args.tls_certificate), ("tls-key", &args.tls_key)]
    {
        let Some(file) = file else { continue };
        invalid.ensure(flag, args.tls, "contradicts a connection without --tls");
        invalid.ensure(flag, file.is_file(), format!("there is no file `{}`", file.display()));
    }
    let identity = match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (Some(_), None) => {
            invalid.add("tls-key", "missing, while --tls-certificate is given");
            None
        }
        (None, Some(_)) => {
            invalid.add("tls-certificate", "missing, while --tls-key is given");
            None
        }
        (None, None) => None,
    };
    args.tls.then(|| Tls { ca: args.tls_ca.clone(), identity })
}

fn sasl(args: &KafkaArgs, invalid: &mut Invalid) -> Option<Sasl> {
    let by_password = matches!(args.sasl, Some(Mechanism::Plain | Mechanism::ScramSha256 | Mechanism::ScramSha512));
    let given = [
        ("sasl-user", args.sasl_user.is_some()),
        ("sasl-password", args.sasl_password.is_some()),
        ("sasl-password-file", args.sasl_password_file.is_some()),
    ];
    for (flag, given) in given {
        invalid.ensure(flag, by_password || !given, "contradicts a login without user and password (--sasl)");
    }
    let region_wanted = args.sasl == Some(Mechanism::MskIam);
    invalid.ensure("msk-region", region_wanted || args.msk_region.is_none(), "contradicts a login that is not msk-iam");
    let scram = matches!(args.sasl, Some(Mechanism::ScramSha256 | Mechanism::ScramSha512));
    invalid.ensure("sasl", !scram || kafka::TLS, "this build knows no SCRAM: build it with the feature `tls`");
    match args.sasl? {
        Mechanism::Plain => credentials(args, invalid).map(Sasl::Plain),
        Mechanism::ScramSha256 => credentials(args, invalid).map(Sasl::ScramSha256),
        Mechanism::ScramSha512 => credentials(args, invalid).map(Sasl::ScramSha512),
        Mechanism::MskIam => {
            invalid.ensure("sasl", kafka::MSK_IAM, "this build knows no IAM: build it with the feature `msk-iam`");
            invalid.ensure("tls", args.tls, "missing, while --sasl msk-iam needs it");
            invalid.require("msk-region", args.msk_region.clone()).map(|region| Sasl::MskIam { region })
        }
    }
}

fn credentials(args: &KafkaArgs, invalid: &mut Invalid) -> Option<Credentials> {
    let user = invalid.require("sasl-user", args.sasl_user.clone());
    let password = match (&args.sasl_password, &args.sasl_password_file) {
        (Some(_), Some(_)) => {
            invalid.add("sasl-password-file", "contradicts --sasl-password");
            None
        }
        (Some(password), None) => Some(password.clone()),
        (None, Some(file)) => {
            invalid.accept("sasl-password-file", Secret::read(file).map_err(|error| format!("{error:#}")))
        }
        (None, None) => invalid.require("sasl-password", None),
    };
    user.zip(password).map(|(user, password)| Credentials { user, password: password.expose().to_owned() })
}
