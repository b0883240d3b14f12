//! The SDK's clients, set up once and shared by every port.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, HttpClient, ProvideCredentials as _, Region, SharedCredentialsProvider,
    StalledStreamProtectionConfig,
};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::TimeSource;
use aws_types::SdkConfig;
use aws_types::sdk_config::Builder;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_service::{Chance, StoreClock};
use tokio::time::Instant;

use super::clock::{ReadDate, SigningTime};
use super::environment::{instance_has_none, instance_is_silent};
use super::fault::in_one_line;
use super::watch::TablesWatch;

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
    /// How long one attempt may take.
    pub attempt_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let attempt_timeout = Duration::from_secs(3);
        Self {
            table_prefix: String::new(),
            endpoint: None,
            region: None,
            access: Access::Environment,
            attempts: 3,
            attempt_timeout,
        }
    }
}

impl Settings {
    /// How long a connection may take.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// For an engine on this machine that checks no credentials.
    pub fn local(table_prefix: &str) -> Self {
        let region = Some("us-east-1".to_owned());
        Self { table_prefix: table_prefix.to_owned(), region, access: Access::Local, ..Self::default() }
    }
}

/// Every table of a deployment, without the prefix.
pub(super) const NAMES: [&str; 4] = [LIKES, COUNTS, CHECKPOINTS, "recounts"];
pub(super) const LIKES: &str = "likes";
pub(super) const COUNTS: &str = "like_counts";
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The tables' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// What every name begins with.
    pub prefix: String,
    /// Rows, and the recount's markers beside them.
    pub likes: String,
    /// One item per counter.
    pub counts: String,
    /// Claims, what is stored of the log `changes`, the deployment's configuration.
    pub checkpoints: String,
    /// Runs, the queue, the ledgers, milestones.
    pub recounts: String,
}

impl Tables {
    /// The tables of a deployment, each name behind `prefix`.
    pub fn with_prefix(prefix: &str) -> Self {
        let [likes, counts, checkpoints, recounts] = NAMES.map(|name| format!("{prefix}{name}"));
        Self { prefix: prefix.to_owned(), likes, counts, checkpoints, recounts }
    }

    /// Each table: its name without the prefix, and its name.
    pub(super) fn each(&self) -> [(&str, &str); 4] {
        [&self.likes, &self.counts, &self.checkpoints, &self.recounts]
            .map(|name| (name.strip_prefix(&self.prefix).unwrap_or(name), name.as_str()))
    }
}

/// Clients and table names. Cloning it is cheap and shares them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) tables: Arc<Tables>,
    /// Repeats what timed out or was throttled, a bounded number of times.
    pub(super) client: aws_sdk_dynamodb::Client,
    /// Sends every request once, signed by the store's clock: for writes whose repetition has to be decided by the caller.
    pub(super) by_store_clock: aws_sdk_dynamodb::Client,
    pub(super) streams: aws_sdk_dynamodbstreams::Client,
    /// What tells these tables from those of any other deployment, once they were checked.
    pub(super) deployment: Arc<OnceLock<String>>,
    /// What is wrong with the tables, as far as this process has seen.
    pub(super) watch: TablesWatch,
    store_clock: StoreClock,
    /// How much of a wait is waited.
    pub(super) jitter: Chance,
    region: Option<Region>,
    credentials: Option<SharedCredentialsProvider>,
}

/// What requests cannot be signed without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The variable that is most often used to name it.
    pub variable: &'static str,
    /// What would help.
    pub problem: String,
}

impl Connection {
    /// Over the network, as `settings` and, unless the engine is a local one, the standard AWS variables say. Opens no
    /// connection yet. A local engine is spoken to without TLS.
    pub async fn open(settings: &Settings) -> Self {
        let config = match settings.access {
            Access::Environment => standard(settings).await,
            Access::Local => local(settings).http_client(aws_smithy_http_client::Builder::new().build_http()).build(),
        };
        Self::over(&config, settings, Chance::from_entropy())
    }

    /// Over an HTTP client that needs no network, such as an emulator's in this process. Sleeps and time-outs follow
    /// tokio's clock, and requests are signed as of `began` and tokio's time since, so that a service runs under paused
    /// time. Waits before a repetition are drawn at random inside the SDK: where one seed has to give one run, set
    /// `attempts` to 1.
    pub fn in_process(settings: &Settings, http: impl HttpClient + 'static, began: UnixMillis) -> Self {
        let config = local(settings)
            .time_source(TokioTime::starting_at(began))
            // Nothing can stall on its way, and the watch over it wakes up all the time.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(http)
            .build();
        Self::over(&config, settings, Chance::seeded(began.0))
    }

    /// What tells this deployment from any other: the resource name of its likes table, account and region included. Known
    /// once the tables were checked.
    pub fn deployment(&self) -> Option<&str> {
        self.deployment.get().map(String::as_str)
    }

    /// What is missing to sign requests, after everything was asked that might know: variables, profiles, roles and the
    /// instance.
    ///
    /// # Errors
    /// Somewhere that should know it and did not answer.
    pub async fn missing(&self) -> Outcome<Option<Missing>> {
        if self.region.is_none() {
            return Ok(Some(Missing { variable: "AWS_REGION", problem: NO_REGION.to_owned() }));
        }
        let Some(credentials) = &self.credentials else { return Ok(None) };
        match credentials.provide_credentials().await {
            Ok(_) => Ok(None),
            Err(error @ CredentialsError::CredentialsNotLoaded(_)) if !instance_is_silent(&error) => {
                Ok(Some(no_credentials(&in_one_line(&error))))
            }
            Err(error) if instance_has_none(&error) => Ok(Some(no_credentials("the instance gives none"))),
            Err(error) => Err(Fault::Transient(format!("AWS credentials: {}", in_one_line(&error)))),
        }
    }

    /// What the store's answers have shown of its clock.
    pub fn store_clock(&self) -> StoreClock {
        self.store_clock.clone()
    }

    /// Whether the tables are those that the deployment was created over, as the watch of this process has seen them last: it
    /// runs from [`Deployment::create`](crate::Deployment::create) or [`join`](crate::Deployment::join) on.
    pub fn tables_watch(&self) -> TablesWatch {
        self.watch.clone()
    }

    /// The region that requests go to.
    pub fn region(&self) -> Option<&str> {
        self.region.as_ref().map(Region::as_ref)
    }

    /// The names of the tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    fn over(config: &SdkConfig, settings: &Settings, jitter: Chance) -> Self {
        let store_clock = StoreClock::default();
        let tables = || aws_sdk_dynamodb::config::Builder::from(config).interceptor(ReadDate(store_clock.clone()));
        let local = config.time_source().unwrap_or_default();
        let by_store_clock = tables()
            .retry_config(RetryConfig::disabled())
            .time_source(SigningTime { store: store_clock.clone(), local });
        let by_store_clock = by_store_clock.disable_clock_skew_correction(true);
        let streams = aws_sdk_dynamodbstreams::config::Builder::from(config);
        let streams = streams.interceptor(ReadDate(store_clock.clone())).build();
        Self {
            tables: Arc::new(Tables::with_prefix(&settings.table_prefix)),
            client: aws_sdk_dynamodb::Client::from_conf(tables().build()),
            by_store_clock: aws_sdk_dynamodb::Client::from_conf(by_store_clock.build()),
            streams: aws_sdk_dynamodbstreams::Client::from_conf(streams),
            deployment: Arc::default(),
            watch: TablesWatch::default(),
            store_clock,
            jitter,
            region: config.region().cloned(),
            credentials: config.credentials_provider(),
        }
    }
}

fn no_credentials(why: &str) -> Missing {
    let problem = format!("missing, and no profile or role has credentials: {why}");
    Missing { variable: "AWS_ACCESS_KEY_ID", problem }
}

const NO_REGION: &str = "missing: neither it nor AWS_DEFAULT_REGION, a profile or the instance names a region";

/// What the standard AWS variables, profiles, roles and the instance say, and `settings` before them.
async fn standard(settings: &Settings) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(retries(settings))
        .timeout_config(timeouts(settings));
    if let Some(endpoint) = &settings.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(region) = &settings.region {
        loader = loader.region(Region::new(region.clone()));
    }
    loader.load().await
}

/// For an engine on this machine or in this process, but for the HTTP client.
fn local(settings: &Settings) -> Builder {
    let region = settings.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = settings.endpoint.clone().unwrap_or_else(|| "http://in-process.invalid".to_owned());
    let credentials = Credentials::new("local", "local", None, None, "local");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .retry_config(retries(settings))
        .timeout_config(timeouts(settings))
        .sleep_impl(TokioSleep::new())
}

fn retries(settings: &Settings) -> RetryConfig {
    match settings.attempts {
        0 | 1 => RetryConfig::disabled(),
        attempts => RetryConfig::standard().with_max_attempts(attempts),
    }
}

fn timeouts(settings: &Settings) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Settings::CONNECT_TIMEOUT)
        .operation_attempt_timeout(settings.attempt_timeout)
        .build()
}

/// Wall time that moves with tokio's.
#[derive(Debug)]
struct TokioTime {
    began: SystemTime,
    origin: Instant,
}

impl TokioTime {
    fn starting_at(began: UnixMillis) -> Self {
        Self { began: UNIX_EPOCH + Duration::from_millis(began.0), origin: Instant::now() }
    }
}

impl TimeSource for TokioTime {
    fn now(&self) -> SystemTime {
        self.began + self.origin.elapsed()
    }
}

/// A service for tests of what goes over the wire.
#[cfg(test)]
pub(super) mod told {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use aws_smithy_runtime_api::client::http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
    };
    use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
    use aws_smithy_types::body::SdkBody;
    use serde_json::Value;

    /// A service that says what it is told to, and breaks the connection once it has said everything.
    #[derive(Clone, Debug)]
    pub(in crate::dynamodb) struct Told {
        answers: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        asked: Arc<Mutex<Vec<Value>>>,
    }

    impl Told {
        pub(in crate::dynamodb) fn new(answers: &[(u16, &'static str)]) -> Self {
            Self { answers: Arc::new(Mutex::new(answers.iter().copied().collect())), asked: Arc::default() }
        }

        /// The bodies of the requests so far.
        pub(in crate::dynamodb) fn asked(&self) -> Vec<Value> {
            self.asked.lock().unwrap().clone()
        }
    }

    impl HttpClient for Told {
        fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
            SharedHttpConnector::new(self.clone())
        }
    }

    impl HttpConnector for Told {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            self.asked.lock().unwrap().push(serde_json::from_slice(request.body().bytes().unwrap()).unwrap());
            HttpConnectorFuture::ready(match self.answers.lock().unwrap().pop_front() {
                Some((status, body)) => Ok(HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body))),
                None => Err(ConnectorError::io("connection reset".into())),
            })
        }
    }
}
