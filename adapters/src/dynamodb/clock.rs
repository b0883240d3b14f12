//! Learns the store's clock from the `Date` header of each of its answers.

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::date_time::Format;
use tally_core::time::UnixMillis;
use tally_service::StoreClock;
use tokio::time::Instant;

/// Takes part in every attempt of a client. An answer without a readable date teaches nothing.
#[derive(Clone, Debug)]
pub(super) struct ReadDate(pub(super) StoreClock);

/// When the attempt under way was sent.
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

/// The time that a `Date` header of HTTP states.
pub fn http_date(date: &str) -> Option<UnixMillis> {
    let millis = DateTime::from_str(date, Format::HttpDate).ok()?.to_millis().ok()?;
    u64::try_from(millis).ok().map(UnixMillis).filter(|at| *at <= UnixMillis::MAX)
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
