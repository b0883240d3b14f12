//! How to reach Kafka: brokers and security, as librdkafka's settings. The caller checks them against each other.

use std::fmt;
use std::path::PathBuf;

use rdkafka::ClientConfig;

/// Where Kafka is and how to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bootstrap servers, `host:port` separated by commas.
    pub brokers: String,
    /// Encryption and login.
    pub security: Security,
}

/// Encryption and login; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Encryption, where it is wanted.
    pub tls: Option<Tls>,
    /// Login, where it is wanted.
    pub sasl: Option<Sasl>,
}

/// How the connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates to trust, PEM; the system's where none are named.
    pub ca: Option<PathBuf>,
    /// The certificate and the key to show to the broker, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// User and password as they are.
    Plain(Credentials),
    /// A proof of the password, with SHA-256.
    ScramSha256(Credentials),
    /// A proof of the password, with SHA-512.
    ScramSha512(Credentials),
    /// AWS credentials of the environment, for MSK.
    MskIam {
        /// The cluster's AWS region.
        region: String,
    },
}

/// A user and a password, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).field("password", &"***").finish()
    }
}

impl Settings {
    /// Brokers without encryption or login.
    pub fn plaintext(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), security: Security::default() }
    }

    /// What every client is configured with.
    pub(super) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("client.id", "tally");
        config.set("socket.keepalive.enable", "true").set("reconnect.backoff.max.ms", "5000");
        config.set("security.protocol", self.protocol());
        if let Some(tls) = &self.security.tls {
            let paths = [
                ("ssl.ca.location", tls.ca.as_ref()),
                ("ssl.certificate.location", tls.identity.as_ref().map(|(certificate, _)| certificate)),
                ("ssl.key.location", tls.identity.as_ref().map(|(_, key)| key)),
            ];
            for (name, path) in paths {
                if let Some(path) = path {
                    config.set(name, path.to_string_lossy());
                }
            }
        }
        match &self.security.sasl {
            None => {}
            Some(Sasl::Plain(credentials)) => log_in(&mut config, "PLAIN", credentials),
            Some(Sasl::ScramSha256(credentials)) => log_in(&mut config, "SCRAM-SHA-256", credentials),
            Some(Sasl::ScramSha512(credentials)) => log_in(&mut config, "SCRAM-SHA-512", credentials),
            Some(Sasl::MskIam { .. }) => _ = config.set("sasl.mechanism", "OAUTHBEARER"),
        }
        config
    }

    fn protocol(&self) -> &'static str {
        match (&self.security.tls, &self.security.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        }
    }
}

fn log_in(config: &mut ClientConfig, mechanism: &str, credentials: &Credentials) {
    config.set("sasl.mechanism", mechanism);
    config.set("sasl.username", &credentials.user).set("sasl.password", &credentials.password);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secured(tls: bool, sasl: Option<Sasl>) -> ClientConfig {
        let security = Security { tls: tls.then(Tls::default), sasl };
        Settings { brokers: "b:9092".to_owned(), security }.client()
    }

    #[test]
    fn encryption_and_login_choose_the_protocol() {
        let login = || Some(Sasl::ScramSha512(Credentials { user: "u".into(), password: "canary".into() }));
        let protocol = |config: &ClientConfig| config.get("security.protocol").map(str::to_owned);
        assert_eq!(protocol(&secured(false, None)).as_deref(), Some("plaintext"));
        assert_eq!(protocol(&secured(true, None)).as_deref(), Some("ssl"));
        assert_eq!(protocol(&secured(false, login())).as_deref(), Some("sasl_plaintext"));
        let both = secured(true, login());
        assert_eq!(protocol(&both).as_deref(), Some("sasl_ssl"));
        assert_eq!(both.get("sasl.mechanism"), Some("SCRAM-SHA-512"));
    }

    #[test]
    fn a_password_is_never_printed() {
        let credentials = Credentials { user: "u".into(), password: "canary".into() };
        let settings = Settings {
            brokers: "b:9092".into(),
            security: Security { tls: None, sasl: Some(Sasl::Plain(credentials)) },
        };
        assert!(!format!("{settings:?}").contains("canary"));
    }
}
