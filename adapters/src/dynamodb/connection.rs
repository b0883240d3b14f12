//! The SDK's clients, set up once and shared by every port.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
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
use tally_service::StoreClock;
use tokio::time::Instant;

use super::clock::ReadDate;
use super::fault::in_one_line;
use super::instance;
use super::names::Tables;
use super::settings::{Access, Settings};
use super::signing::SigningTime;
use super::tables_watch::TablesWatch;

/// Clients and table names. Cloning it is cheap and shares them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) tables: Arc<Tables>,
    /// Repeats what timed out or was throttled, a bounded number of times.
    pub(super) client: aws_sdk_dynamodb::Client,
    /// Sends every request once, for writes whose repetition has to be decided by the caller.
    pub(super) once: aws_sdk_dynamodb::Client,
    /// The same, whose requests are signed by the store's clock.
    pub(super) by_store_clock: aws_sdk_dynamodb::Client,
    pub(super) streams: aws_sdk_dynamodbstreams::Client,
    /// What tells these tables from those of any other deployment, once they were checked.
    pub(super) deployment: Arc<OnceLock<String>>,
    /// What is wrong with the tables, as far as this process has seen.
    pub(super) watch: TablesWatch,
    store_clock: StoreClock,
    pub(super) jitter: Jitter,
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
        Self::over(&config, settings, RandomState::new().build_hasher().finish())
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
        Self::over(&config, settings, began.0)
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
            Err(error @ CredentialsError::CredentialsNotLoaded(_)) if !instance::is_silent(&error) => {
                Ok(Some(no_credentials(&in_one_line(&error))))
            }
            Err(error) if instance::has_none(&error) => Ok(Some(no_credentials("the instance gives none"))),
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

    fn over(config: &SdkConfig, settings: &Settings, seed: u64) -> Self {
        let store_clock = StoreClock::default();
        let tables = || aws_sdk_dynamodb::config::Builder::from(config).interceptor(ReadDate(store_clock.clone()));
        let once = || tables().retry_config(RetryConfig::disabled());
        let local = config.time_source().unwrap_or_default();
        let by_store_clock =
            once().time_source(SigningTime { store: store_clock.clone(), local }).disable_clock_skew_correction(true);
        let streams = aws_sdk_dynamodbstreams::config::Builder::from(config);
        let streams = streams.interceptor(ReadDate(store_clock.clone())).build();
        Self {
            tables: Arc::new(Tables::with_prefix(&settings.table_prefix)),
            client: aws_sdk_dynamodb::Client::from_conf(tables().build()),
            once: aws_sdk_dynamodb::Client::from_conf(once().build()),
            by_store_clock: aws_sdk_dynamodb::Client::from_conf(by_store_clock.build()),
            streams: aws_sdk_dynamodbstreams::Client::from_conf(streams),
            deployment: Arc::default(),
            watch: TablesWatch::default(),
            store_clock,
            jitter: Jitter::seeded(seed),
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
        .connect_timeout(settings.connect_timeout)
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

/// How much of a wait is waited: drawn anew each time, by no two processes alike unless they are given one seed.
#[derive(Clone, Debug)]
pub(super) struct Jitter(Arc<AtomicU64>);

impl Jitter {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// From 0 up to 1: SplitMix64.
    pub(super) fn fraction(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from(bits >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}
