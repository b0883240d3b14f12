//! Signature Version 4 of a POST whose headers are always the same. The key of a day is kept, and so is the text of a second.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::{ConfigBag, RuntimeComponents};
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::auth::AuthSchemeId;
use aws_smithy_runtime_api::client::identity::ResolveCachedIdentity as _;
use aws_smithy_runtime_api::client::runtime_components::GetIdentityResolver as _;
use aws_smithy_types::date_time::{DateTime, Format};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

/// Signs what goes to one host.
#[derive(Debug)]
pub(super) struct Signer {
    host: String,
    path: String,
    /// `region/service`, as the SDK signs.
    scope: String,
    /// What the clock and the credentials of the last request came to.
    last: Mutex<Option<Arc<Second>>>,
}

/// What all requests of one second and one set of credentials share.
#[derive(Debug)]
struct Second {
    since_epoch: u64,
    access_key: String,
    token: Option<String>,
    /// `20261125T030000Z`.
    date: String,
    /// `20261125/region/service/aws4_request`.
    scope: String,
    key: Vec<u8>,
}

/// The headers that make a request a signed one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) date: HeaderValue,
    pub(super) authorization: HeaderValue,
    pub(super) token: Option<HeaderValue>,
}

impl Signer {
    /// Signs for the region and service that `authorization`, a header of the SDK's, is for.
    pub(super) fn like(authorization: &str, host: &str, path: &str) -> Option<Self> {
        let credential = authorization.strip_prefix("AWS4-HMAC-SHA256 Credential=")?.split(',').next()?;
        let mut parts = credential.rsplitn(4, '/');
        let (_terminator, service, region) = (parts.next()?, parts.next()?, parts.next()?);
        let scope = format!("{region}/{service}");
        Some(Self { host: host.to_owned(), path: path.to_owned(), scope, last: Mutex::default() })
    }

    /// Signs `body` for `target`, as of now and with the credentials of now.
    pub(super) async fn sign(
        &self,
        components: &RuntimeComponents,
        target: &str,
        body: &[u8],
    ) -> Result<Signed, BoxError> {
        let resolver =
            components.identity_resolver(AuthSchemeId::from("sigv4")).ok_or("no credentials are configured")?;
        let cache = components.identity_cache();
        let nothing = ConfigBag::base();
        let identity = cache.resolve_cached_identity(resolver, components, &nothing).await?;
        let credentials = identity.data::<Credentials>().ok_or("credentials of an unknown kind")?;
        let now = components.time_source().ok_or("no clock")?.now();
        self.signed(&*self.second(credentials, now)?, target, body)
    }

    fn second(&self, credentials: &Credentials, now: SystemTime) -> Result<Arc<Second>, BoxError> {
        let since_epoch = now.duration_since(UNIX_EPOCH)?.as_secs();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(second) = &*last
            && second.since_epoch == since_epoch
            && second.access_key == credentials.access_key_id()
            && second.token.as_deref() == credentials.session_token()
        {
            return Ok(Arc::clone(second));
        }
        let date = DateTime::from_secs(i64::try_from(since_epoch)?).fmt(Format::DateTime)?.replace(['-', ':'], "");
        let day = date.split('T').next().unwrap_or_default();
        let (region, service) = self.scope.split_once('/').unwrap_or_default();
        let second = Arc::new(Second {
            since_epoch,
            access_key: credentials.access_key_id().to_owned(),
            token: credentials.session_token().map(str::to_owned),
            scope: format!("{day}/{}/aws4_request", self.scope),
            key: generate_signing_key(credentials.secret_access_key(), now, region, service).as_ref().to_vec(),
            date,
        });
        *last = Some(Arc::clone(&second));
        Ok(second)
    }

    fn signed(&self, second: &Second, target: &str, body: &[u8]) -> Result<Signed, BoxError> {
        let Second { date, scope, token, .. } = second;
        let (token_line, token_name) = match token {
            Some(token) => (format!("x-amz-security-token:{token}\n"), "x-amz-security-token;"),
            None => (String::new(), ""),
        };
        let names = format!("host;x-amz-date;{token_name}x-amz-target");
        let canonical = format!(
            "POST\n{}\n\nhost:{}\nx-amz-date:{date}\n{token_line}x-amz-target:{target}\n\n{names}\n{}",
            self.path,
            self.host,
            hexadecimal(&Sha256::digest(body))
        );
        let hashed = hexadecimal(&Sha256::digest(canonical));
        let signature =
            calculate_signature(&second.key, format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}").as_bytes());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            second.access_key
        );
        let mut authorization = HeaderValue::try_from(authorization)?;
        authorization.set_sensitive(true);
        let token = token.as_ref().map(HeaderValue::try_from).transpose()?.map(|mut token| {
            token.set_sensitive(true);
            token
        });
        Ok(Signed { date: HeaderValue::try_from(date)?, authorization, token })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
    use aws_sigv4::sign::v4::SigningParams;

    use super::*;

    #[test]
    fn a_request_is_signed_as_the_sdk_would_sign_it() {
        let now = UNIX_EPOCH + Duration::from_secs(1_764_039_601);
        let scope = "AWS4-HMAC-SHA256 Credential=AKID/20251125/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
        let signer = Signer::like(scope, "dynamodb.eu-west-1.amazonaws.com", "/").unwrap();
        for token in [None, Some("a+token/=".to_owned())] {
            for body in [&b"{}"[..], b"{\"TableName\":\"likes\"}"] {
                let credentials = Credentials::new("AKID", "secret", token.clone(), None, "test");
                let second = signer.second(&credentials, now).unwrap();
                let ours = signer.signed(&second, "DynamoDB_20120810.UpdateItem", body).unwrap();
                let identity = credentials.into();
                let params = SigningParams::builder()
                    .identity(&identity)
                    .region("eu-west-1")
                    .name("dynamodb")
                    .time(now)
                    .settings(SigningSettings::default())
                    .build()
                    .unwrap();
                let headers = [("x-amz-target", "DynamoDB_20120810.UpdateItem")];
                let uri = "https://dynamodb.eu-west-1.amazonaws.com/";
                let request =
                    SignableRequest::new("POST", uri, headers.into_iter(), SignableBody::Bytes(body)).unwrap();
                let (theirs, _) = sign(request, &params.into()).unwrap().into_parts();
                let header = |wanted: &str| theirs.headers().find(|(name, _)| *name == wanted).map(|(_, value)| value);
                assert_eq!(ours.authorization.to_str().ok(), header("authorization"));
                assert_eq!(ours.date.to_str().ok(), header("x-amz-date"));
                assert_eq!(ours.token.as_ref().and_then(|token| token.to_str().ok()), header("x-amz-security-token"));
            }
        }
    }

    #[test]
    fn other_credentials_and_another_second_are_signed_anew() {
        let signer =
            Signer::like("AWS4-HMAC-SHA256 Credential=A/20251125/r/dynamodb/aws4_request, x", "h", "/").unwrap();
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        let key = |access: &str, token: Option<&str>, secs| {
            let credentials = Credentials::new(access, access, token.map(str::to_owned), None, "test");
            let second = signer.second(&credentials, at(secs)).unwrap();
            (second.access_key.clone(), second.token.clone(), second.date.clone())
        };
        assert_eq!(key("a", None, 0), ("a".into(), None, "19700101T000000Z".into()));
        assert_eq!(key("b", None, 0), ("b".into(), None, "19700101T000000Z".into()));
        assert_eq!(key("b", Some("t"), 0), ("b".into(), Some("t".into()), "19700101T000000Z".into()));
        assert_eq!(key("b", Some("t"), 86_400), ("b".into(), Some("t".into()), "19700102T000000Z".into()));
    }

    #[test]
    fn what_is_no_signature_is_not_imitated() {
        for authorization in ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=a"] {
            assert!(Signer::like(authorization, "h", "/").is_none(), "{authorization}");
        }
    }
}
