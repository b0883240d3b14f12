//! The SDK's clients, set up once and shared by every port.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, HttpClient, SharedCredentialsProvider};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::TimeSource;
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use super::names::Tables;
use super::settings::{Access, Settings};

/// Clients and table names. Cloning it is cheap and shares them.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) tables: Arc<Tables>,
    /// Repeats what timed out or was throttled, a bounded number of times.
    pub(super) client: aws_sdk_dynamodb::Client,
    /// Sends every request once, for writes whose repetition has to be decided by the caller.
    pub(super) once: aws_sdk_dynamodb::Client,
    pub(super) streams: aws_sdk_dynamodbstreams::Client,
}

impl Connection {
    /// Over the network, as the standard AWS variables and `settings` say. Opens no connection yet.
    pub async fn open(settings: &Settings) -> Self {
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(retries(settings))
            .timeout_config(timeouts(settings));
        if let Some(endpoint) = &settings.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(region) = &settings.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if settings.access == Access::Local {
            loader = loader.credentials_provider(local_credentials());
        }
        Self::over(&loader.load().await, settings)
    }

    /// Over an HTTP client that needs no network, such as an emulator's in this process. Sleeps and time-outs follow
    /// tokio's clock, and requests are signed as of `began` and tokio's time since, so that a service runs under paused
    /// time. Waits before a repetition are drawn at random inside the SDK: where one seed has to give one run, set
    /// `attempts` to 1.
    pub fn in_process(settings: &Settings, http: impl HttpClient + 'static, began: UnixMillis) -> Self {
        let region = settings.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = settings.endpoint.clone().unwrap_or_else(|| "http://in-process.invalid".to_owned());
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region))
            .endpoint_url(endpoint)
            .credentials_provider(SharedCredentialsProvider::new(local_credentials()))
            .retry_config(retries(settings))
            .timeout_config(timeouts(settings))
            .sleep_impl(TokioSleep::new())
            .time_source(TokioTime::starting_at(began))
            // Nothing can stall on its way, and the watch over it wakes up all the time.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(http)
            .build();
        Self::over(&config, settings)
    }

    /// The names of the tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    fn over(config: &SdkConfig, settings: &Settings) -> Self {
        let once = aws_sdk_dynamodb::config::Builder::from(config).retry_config(RetryConfig::disabled()).build();
        Self {
            tables: Arc::new(Tables::with_prefix(&settings.table_prefix)),
            client: aws_sdk_dynamodb::Client::new(config),
            once: aws_sdk_dynamodb::Client::from_conf(once),
            streams: aws_sdk_dynamodbstreams::Client::new(config),
        }
    }
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

fn local_credentials() -> Credentials {
    Credentials::new("local", "local", None, None, "local")
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
