//! The clock of DynamoDB, which this process learns from the `Date` header of every answer. Batches of PartiQL
//! statements, which write rows, are signed by that clock. Each is sent only if this consumer's claim to the Kafka
//! partition of its events was confirmed lately.
//!
//! A like that arrives after the tombstone of a later removal has expired would bring the row back. So statements are
//! sent only for a short time after the claim was confirmed, and DynamoDB refuses a signature that is old. The check
//! follows the signing: a machine that sleeps before the check sends nothing, and one that sleeps after it sends an old
//! signature.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::date_time::Format;
use tally_core::time::UnixMillis;
use tally_service::{Clock, StoreClock};
use tokio::time::Instant;

/// Teaches the clock the date of every answer of a client. An answer without a readable date teaches nothing.
#[derive(Clone, Debug)]
pub(super) struct ReadDate(pub(super) StoreClock);

/// When the current attempt was sent.
#[derive(Debug)]
struct Sent(Instant);

impl Storable for Sent {
    type Storer = StoreReplace<Self>;
}

impl Intercept for ReadDate {
    fn name(&self) -> &'static str {
        "ReadDate"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        attempt: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        attempt.interceptor_state().store_put(Sent(Instant::now()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        attempt: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").and_then(http_date);
        if let (Some(date), Some(Sent(sent))) = (date, attempt.load::<Sent>()) {
            self.0.learn(*sent, date);
        }
        Ok(())
    }
}

/// Returns the time that a `Date` header of HTTP states.
pub fn http_date(date: &str) -> Option<UnixMillis> {
    let millis = DateTime::from_str(date, Format::HttpDate).ok()?.to_millis().ok()?;
    u64::try_from(millis).ok().map(UnixMillis).filter(|at| *at <= UnixMillis::MAX)
}

/// The clock that signs requests: the store's, or the machine's before the first answer. It is never later than the
/// store's, since a signature by a fast clock would be good for longer. (The machine's clock, and the SDK's correction
/// of it, could jump between two answers.)
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

/// When the claim of a partition was confirmed: the start of the request that did it, by a clock that goes on while the
/// machine sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed {
    at: Duration,
    clock: Clock,
}

impl Confirmed {
    /// How long after that statements may be sent.
    pub const GOOD_FOR: Duration = Duration::from_secs(60);

    /// The confirmation by a request that begins now.
    pub fn now(clock: Clock) -> Self {
        Self { at: clock.awake_or_asleep(), clock }
    }

    /// Returns whether statements may still be sent.
    pub fn is_good(&self) -> bool {
        self.clock.awake_or_asleep().saturating_sub(self.at) <= Self::GOOD_FOR
    }
}

/// Stops each attempt to send a statement after a confirmation that is too old.
impl Intercept for Confirmed {
    fn name(&self) -> &'static str {
        "Confirmed"
    }

    /// Runs after the signing, as the last step before the request is sent.
    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.is_good() { Ok(()) } else { Err("not sent: the claim was not confirmed in time".into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_http_writes_it_and_anything_else_is_none() {
        assert_eq!(http_date("Tue, 14 Nov 2023 22:13:20 GMT"), Some(UnixMillis(1_700_000_000_000)));
        for other in ["", "now", "2023-11-14T22:13:20Z", "Mon, 01 Jan 1900 00:00:00 GMT"] {
            assert_eq!(http_date(other), None, "{other}");
        }
    }
}
