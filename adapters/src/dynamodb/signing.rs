//! When a statement may be sent, and by which clock it is signed.
//!
//! A like that arrives after the tombstone of a later removal has expired would bring the row back. So a statement is sent only
//! for a short time after the claim of its partition was confirmed, and the store refuses one that was signed long ago. The claim
//! is looked at once the signature is there: a machine that sleeps before that sends nothing, and one that sleeps behind it sends
//! an old signature.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use aws_smithy_runtime_api::box_error::BoxError;
use tally_service::{Clock, StoreClock};

/// The store's clock, and before its first answer the machine's. Never later than the store's: a signature made by a clock that
/// is fast would be good for longer. (The machine's clock and what the SDK adds to it could jump between two answers.)
#[derive(Debug)]
pub(super) struct SigningTime {
    pub(super) store: StoreClock,
    pub(super) local: SharedTimeSource,
}

impl TimeSource for SigningTime {
    fn now(&self) -> SystemTime {
        let store = self.store.bounds().map(|bounds| UNIX_EPOCH + Duration::from_millis(bounds.earliest.0));
        store.unwrap_or_else(|| self.local.now())
    }
}

/// That the claim of a partition was confirmed, and when: the start of the request that did, by a clock that goes on while the
/// machine sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed {
    at: Duration,
    clock: Clock,
}

impl Confirmed {
    /// How long statements may be sent.
    pub const GOOD_FOR: Duration = Duration::from_secs(60);

    /// Of a request that begins now.
    pub fn now(clock: Clock) -> Self {
        Self { at: clock.awake_or_asleep(), clock }
    }

    /// Whether statements may be sent.
    pub fn is_good(&self) -> bool {
        self.clock.awake_or_asleep().saturating_sub(self.at) <= Self::GOOD_FOR
    }
}

/// Takes part in each attempt of a statement.
impl Intercept for Confirmed {
    fn name(&self) -> &'static str {
        "Confirmed"
    }

    /// Behind the signature, and the last thing before the request is sent.
    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.is_good() { Ok(()) } else { Err("not sent: the claim was not confirmed in time".into()) }
    }
}
