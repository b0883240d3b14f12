//! The store refuses a request that was signed more than five minutes ago. The emulator knows no signatures.

use std::time::Duration;

use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::{DateTime, Format};
use tally_core::time::UnixMillis;

/// How long a signature is good.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// Whether a request was signed too long ago.
pub(super) fn is_expired(request: &HttpRequest, now: UnixMillis) -> bool {
    let signed = request.headers().get("x-amz-date").and_then(signed_at);
    signed.is_some_and(|signed| now.since(signed) > GOOD_FOR)
}

/// `20231114T221320Z`.
fn signed_at(date: &str) -> Option<UnixMillis> {
    let (day, time) = (date.get(..8)?, date.get(9..15)?);
    let part = |text: &str, from: usize| text.get(from..from + 2).map(str::to_owned);
    let [month, of_month] = [part(day, 4)?, part(day, 6)?];
    let [hour, minute, second] = [part(time, 0)?, part(time, 2)?, part(time, 4)?];
    let text = format!("{}-{month}-{of_month}T{hour}:{minute}:{second}Z", day.get(..4)?);
    let millis = DateTime::from_str(&text, Format::DateTime).ok()?.to_millis().ok()?;
    u64::try_from(millis).ok().map(UnixMillis)
}

/// What it is answered.
#[expect(clippy::unnecessary_wraps, reason = "it takes the place of an answer")]
pub(super) fn refusal() -> Result<HttpResponse, ConnectorError> {
    let body = r#"{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired"}"#;
    let mut refused = HttpResponse::new(StatusCode::try_from(400).expect("a status"), SdkBody::from(body));
    refused.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_signature_is_read() {
        assert_eq!(signed_at("20231114T221320Z"), Some(UnixMillis(1_700_000_000_000)));
        assert_eq!(signed_at("today"), None);
    }
}
