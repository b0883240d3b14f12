//! How the clients are set up; leaves reading flags to the binaries.

use std::time::Duration;

/// Where requests are signed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The standard chain: environment, profile, container or instance role.
    Environment,
    /// A name and a secret that protect nothing, for engines on this machine that accept any. Chosen, never fallen
    /// back to.
    Local,
}

/// How the clients behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Stands before every table's name.
    pub table_prefix: String,
    /// Another endpoint than the standard variables or the Region name.
    pub endpoint: Option<String>,
    /// Another Region than the standard variables name.
    pub region: Option<String>,
    /// Where requests are signed from.
    pub access: Access,
    /// How often a call is tried, the first time included.
    pub attempts: u32,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long one attempt may take.
    pub attempt_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            table_prefix: String::new(),
            endpoint: None,
            region: None,
            access: Access::Environment,
            attempts: 3,
            connect_timeout: Duration::from_secs(1),
            attempt_timeout: Duration::from_secs(3),
        }
    }
}

impl Settings {
    /// For an engine on this machine that checks no credentials.
    pub fn local(table_prefix: &str) -> Self {
        let region = Some("us-east-1".to_owned());
        Self { table_prefix: table_prefix.to_owned(), region, access: Access::Local, ..Self::default() }
    }
}
