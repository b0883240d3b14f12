//! Who may read and who may write: one bearer token each, compared in constant time.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use tally_service::Secret;

/// The token a group of routes asks for; without one they are open.
#[derive(Clone, Debug, Default)]
pub struct Guard(Option<Arc<Secret>>);

impl Guard {
    /// Asks for `token`, if there is one.
    pub fn new(token: Option<Secret>) -> Self {
        Self(token.map(Arc::new))
    }

    /// Whether a token is asked for.
    pub fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Whether these headers hold the token, where one is asked for.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else { return true };
        bearer(headers).is_some_and(|given| given.ct_eq(token.expose().as_bytes()).into())
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_whole_token_under_its_scheme_opens() {
        let guard = Guard::new(Some(Secret::from("s3cret".to_owned())));
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert!(guard.admits(&with(good)), "{good}");
        }
        for bad in ["s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer S3CRET"] {
            assert!(!guard.admits(&with(bad)), "{bad}");
        }
        assert!(!guard.admits(&HeaderMap::new()));
    }

    #[test]
    fn without_a_token_everything_is_open() {
        assert!(Guard::new(None).admits(&HeaderMap::new()));
        assert!(!Guard::new(None).is_closed());
    }
}
