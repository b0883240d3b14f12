//! Login tokens for MSK: a request signed with the AWS credentials of the environment.

use std::error::Error;

use std::time::Duration;

use aws_sdk_dynamodb::config::Region;
use parking_lot::Mutex;
use rdkafka::client::OAuthToken;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A token lives for fifteen minutes, and librdkafka asks for the next one after four fifths of that.
const FRESH: Duration = Duration::from_secs(13 * 60);

/// Signs tokens for one region.
pub(super) struct Iam {
    region: Region,
    runtime: Option<Handle>,
    signed: Mutex<Option<Instant>>,
}

impl Iam {
    /// A signer that runs on the current runtime.
    pub(super) fn new(region: &str) -> Self {
        Self { region: Region::new(region.to_owned()), runtime: Handle::try_current().ok(), signed: Mutex::new(None) }
    }

    /// Whether a token was signed lately enough to log in with.
    pub(super) fn has_token(&self) -> bool {
        let signed = *self.signed.lock();
        signed.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// A token. Blocks: librdkafka asks for it wherever its events are polled, which may be a worker of the runtime, so
    /// the signer runs on a thread of its own.
    pub(super) fn token(&self) -> Result<OAuthToken, Box<dyn Error>> {
        let runtime = self.runtime.clone().ok_or("no runtime to sign a token on")?;
        let region = self.region.clone();
        let signing = std::thread::spawn(move || {
            runtime.block_on(aws_msk_iam_sasl_signer::generate_auth_token(region)).map_err(|error| error.to_string())
        });
        let (token, lifetime_ms) = signing.join().map_err(|_| "the signer panicked")??;
        *self.signed.lock() = Some(Instant::now());
        Ok(OAuthToken { token, principal_name: "tally".to_owned(), lifetime_ms })
    }
}
