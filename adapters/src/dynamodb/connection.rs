//! The SDK's clients for DynamoDB and its streams, set up once and shared by every port: [`Settings`] says how, and a
//! [`Connection`] has the clients, the names of the tables and the store's clock.

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
use tally_service::{Chance, Invalid, StoreArgs, StoreClock};
use tokio::time::Instant;

use super::clock::{ReadDate, SigningTime};
use super::environment::{instance_has_none, instance_is_silent};
use super::fault::in_one_line;
use super::watch::TablesWatch;

/// How the clients connect, sign and try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The prefix of every table's name.
    pub table_prefix: String,
    /// The endpoint, if it is another one than the standard variables or the Region name.
    pub endpoint: Option<String>,
    /// Whether a name and a secret that protect nothing sign requests, for engines on this machine that accept any.
    /// Nothing falls back to that: a caller has to choose it. Others use the standard chain: environment, profile,
    /// container or instance role.
    pub is_local: bool,
    /// How often a call is tried, the first time included.
    pub attempts: u32,
    /// How long one attempt may take.
    pub attempt_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            table_prefix: String::new(),
            endpoint: None,
            is_local: false,
            attempts: 3,
            attempt_timeout: Duration::from_secs(3),
        }
    }
}

impl Settings {
    /// How long opening a connection may take.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Returns the settings for a deployment's tables. Region, endpoint and credentials come from the standard AWS
    /// variables.
    pub fn of(store: &StoreArgs) -> Self {
        Self { table_prefix: store.table_prefix.clone(), ..Self::default() }
    }

    /// The settings for an engine on this machine that checks no credentials.
    pub fn local(table_prefix: &str) -> Self {
        Self { table_prefix: table_prefix.to_owned(), is_local: true, ..Self::default() }
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
    /// Claims, what is stored of the log `changes`, and the deployment's configuration.
    pub checkpoints: String,
    /// Records of recounts, their queue, the ledgers and milestones.
    pub recounts: String,
}

impl Tables {
    /// The tables of a deployment, whose names begin with `prefix`.
    pub fn with_prefix(prefix: &str) -> Self {
        let [likes, counts, checkpoints, recounts] = NAMES.map(|name| format!("{prefix}{name}"));
        Self { prefix: prefix.to_owned(), likes, counts, checkpoints, recounts }
    }
}

/// Clients and table names. Clones share them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) tables: Arc<Tables>,
    /// Repeats calls that timed out or were throttled, a bounded number of times.
    pub(super) client: aws_sdk_dynamodb::Client,
    /// Sends every request once, signed by the store's clock: for writes whose caller decides whether to repeat them.
    pub(super) by_store_clock: aws_sdk_dynamodb::Client,
    pub(super) streams: aws_sdk_dynamodbstreams::Client,
    /// The resource name of the likes table, once the tables were checked.
    pub(super) deployment: Arc<OnceLock<String>>,
    /// What this process has seen of the tables: whether something is wrong with them.
    pub(super) watch: TablesWatch,
    store_clock: StoreClock,
    /// Draws the random part of the waits between repetitions.
    pub(super) jitter: Chance,
    region: Option<Region>,
    credentials: Option<SharedCredentialsProvider>,
}

impl Connection {
    /// Connects over the network, as `settings` and, unless the engine is a local one, the standard AWS variables say.
    /// Opens no connection yet. Uses no TLS with a local engine.
    pub async fn open(settings: &Settings) -> Self {
        let config = if settings.is_local {
            local(settings).http_client(aws_smithy_http_client::Builder::new().build_http()).build()
        } else {
            standard(settings).await
        };
        Self::over(&config, settings, Chance::from_entropy())
    }

    /// Connects over an HTTP client that needs no network, such as that of an emulator in this process. Sleeps and
    /// time-outs follow tokio's clock, and requests are signed as of `began` and tokio's time since, so that a service
    /// runs under paused time. The SDK draws its waits between repetitions at random: where one seed has to give one
    /// run, set `attempts` to 1.
    pub fn in_process(settings: &Settings, http: impl HttpClient + 'static, began: UnixMillis) -> Self {
        let config = local(settings)
            .time_source(TokioTime { began: UNIX_EPOCH + Duration::from_millis(began.0), origin: Instant::now() })
            // An answer in process cannot stall, and the protection against that wakes up all the time.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(http)
            .build();
        Self::over(&config, settings, Chance::seeded(began.0))
    }

    /// Returns what tells this deployment from any other: the resource name of its likes table, account and Region
    /// included. Known once the tables were checked.
    pub fn deployment(&self) -> Option<&str> {
        self.deployment.get().map(String::as_str)
    }

    /// Returns what is missing to sign requests, under the variable that usually sets it, if anything is. Asks variables,
    /// profiles, roles and the instance.
    ///
    /// # Errors
    /// A source that should know the credentials did not answer.
    pub async fn missing(&self) -> Outcome<Option<Invalid>> {
        if self.region.is_none() {
            return Ok(Some(Invalid::variable("AWS_REGION", NO_REGION)));
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

    /// Returns the store's clock, as this process has learned it from answers.
    pub fn store_clock(&self) -> StoreClock {
        self.store_clock.clone()
    }

    /// Returns the watch over the tables: whether they are those that the deployment was created over. It runs from
    /// [`Deployment::create`](crate::Deployment::create) or [`join`](crate::Deployment::join) on.
    pub fn tables_watch(&self) -> TablesWatch {
        self.watch.clone()
    }

    /// Returns the Region that requests go to.
    pub fn region(&self) -> Option<&str> {
        self.region.as_ref().map(Region::as_ref)
    }

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

fn no_credentials(why: &str) -> Invalid {
    Invalid::variable("AWS_ACCESS_KEY_ID", format!("missing, and no profile or role has credentials: {why}"))
}

const NO_REGION: &str = "missing: neither it nor AWS_DEFAULT_REGION, a profile or the instance names a region";

/// Loads what the standard AWS variables, profiles, roles and the instance say. `settings` come first.
async fn standard(settings: &Settings) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(retries(settings))
        .timeout_config(timeouts(settings));
    if let Some(endpoint) = &settings.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    loader.load().await
}

/// Configures everything except the HTTP client, for an engine on this machine or in this process.
fn local(settings: &Settings) -> Builder {
    let endpoint = settings.endpoint.clone().unwrap_or_else(|| "http://in-process.invalid".to_owned());
    let credentials = Credentials::new("local", "local", None, None, "local");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
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

/// Wall time that moves with tokio's clock.
#[derive(Debug)]
struct TokioTime {
    began: SystemTime,
    origin: Instant,
}

impl TimeSource for TokioTime {
    fn now(&self) -> SystemTime {
        self.began + self.origin.elapsed()
    }
}

/// A stand-in for the service, for tests of the requests that are sent.
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

    /// Answers requests with `answers`, one after the other, and breaks the connection after the last.
    #[derive(Clone, Debug)]
    pub(in crate::dynamodb) struct Told {
        answers: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        asked: Arc<Mutex<Vec<Value>>>,
    }

    impl Told {
        pub(in crate::dynamodb) fn new(answers: &[(u16, &'static str)]) -> Self {
            Self { answers: Arc::new(Mutex::new(answers.iter().copied().collect())), asked: Arc::default() }
        }

        /// Returns the bodies of the requests so far.
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
