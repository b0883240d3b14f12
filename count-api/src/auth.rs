//! Checks the bearer tokens of HTTP requests to the API. Each group of routes has a [`Guard`] with one or more tokens,
//! which are compared in constant time, and read again when their file changes.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use subtle::{Choice, ConstantTimeEq};
use tally_service::{Host, Secret, Stage, Stop};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::error::{Problem, Result};

/// How often the files of tokens are read again.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The tokens of a group of routes, one a line.
#[derive(Clone, Debug)]
pub struct TokenList {
    text: Secret,
    /// The file to read them from again.
    file: Option<PathBuf>,
}

impl TokenList {
    /// Takes the tokens of `text`.
    ///
    /// # Errors
    /// The text has no token. An empty one would admit requests without any.
    pub fn new(text: Secret) -> Result<Self, &'static str> {
        if lines(&text).next().is_none() { Err("is empty") } else { Ok(Self { text, file: None }) }
    }

    /// Reads the tokens of a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no token; the error has its path.
    pub fn read(file: PathBuf) -> Result<Self, String> {
        let text = Secret::read(&file).map_err(|error| format!("{error:#}"))?;
        let tokens = Self::new(text).map_err(|problem| format!("`{}` {problem}", file.display()))?;
        Ok(Self { file: Some(file), ..tokens })
    }

    /// Returns whether an `Authorization` header has one of the tokens.
    fn admits(&self, given: &HeaderValue) -> bool {
        let Some(given) = bearer(given) else { return false };
        lines(&self.text).fold(Choice::from(0), |found, token| found | given.ct_eq(token)).into()
    }
}

/// Returns the token of an `Authorization` header, if its scheme is `Bearer`.
fn bearer(given: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = given.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn lines(text: &Secret) -> impl Iterator<Item = &[u8]> {
    text.expose().lines().map(|line| line.trim().as_bytes()).filter(|line| !line.is_empty())
}

/// Which requests a group of routes admits. Clones share its tokens.
#[derive(Clone, Debug, Default)]
pub enum Guard {
    /// All.
    #[default]
    Open,
    /// None: the group has no tokens, and no flag opens it to callers without one.
    Shut,
    /// Those with one of these tokens.
    Asking(Arc<watch::Sender<TokenList>>),
}

impl Guard {
    /// Admits requests with one of `tokens`, or all if there are none.
    pub fn new(tokens: Option<TokenList>) -> Self {
        tokens.map_or(Self::Open, |tokens| Self::Asking(Arc::new(watch::Sender::new(tokens))))
    }

    /// Returns whether some requests are refused.
    pub fn is_closed(&self) -> bool {
        !matches!(self, Self::Open)
    }

    /// Returns whether both ask for the same list of tokens.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Asking(one), Self::Asking(other)) if Arc::ptr_eq(one, other))
    }

    /// Starts a task that reads the file of the tokens again, if they are from one. If it cannot be read or has no token,
    /// the earlier tokens stay.
    pub(crate) fn follow(&self, host: &Host) {
        let Self::Asking(tokens) = self else { return };
        let (tokens, clock) = (Arc::clone(tokens), host.clock());
        let Some(file) = tokens.borrow().file.clone() else { return };
        host.spawn(Stage::Support, "tokens", move |stop: Stop| async move {
            let mut failed = false;
            while stop.unless_requested(clock.sleep(READ_EVERY)).await.is_ok() {
                let file = file.clone();
                match spawn_blocking(|| TokenList::read(file)).await? {
                    Ok(read) => {
                        failed = false;
                        if read.text != tokens.borrow().text {
                            tracing::info!("the tokens have changed");
                            tokens.send_replace(read);
                        }
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut failed, true) {
                            tracing::warn!(error, "tokens cannot be read again: those of before stay");
                        }
                    }
                }
            }
            Ok(())
        });
    }

    /// Returns an error unless a request with these headers may pass.
    pub fn admits(&self, headers: &HeaderMap) -> Result<()> {
        let tokens = match self {
            Self::Open => return Ok(()),
            Self::Shut => return Err(Problem::WritesClosed),
            Self::Asking(tokens) => tokens,
        };
        // With two headers there is no token, since a proxy may have checked either.
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return Err(Problem::Unauthorised) };
        match bearer(given) {
            Some(_) if tokens.borrow().admits(given) => Ok(()),
            Some(_) => Err(Problem::WrongToken),
            None => Err(Problem::Unauthorised),
        }
    }

    /// Waits until a request with this `Authorization` header would be refused, since its token was withdrawn.
    pub(crate) async fn until_refused(self, given: HeaderValue) {
        let Self::Asking(tokens) = self else { return pending().await };
        let mut changes = tokens.subscribe();
        let withdrawn = changes.wait_for(|tokens| !tokens.admits(&given)).await;
        withdrawn.expect("this task keeps the sender");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn guard(text: &str) -> Guard {
        Guard::new(Some(TokenList::new(Secret::from(text.to_owned())).unwrap()))
    }

    #[test]
    fn only_a_whole_token_under_its_scheme_opens_and_each_line_is_one() {
        let guard = guard("s3cret\n\n  n3xt \r\n");
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret ", "Bearer n3xt"] {
            assert_eq!(guard.admits(&with(&[good])), Ok(()), "{good}");
        }
        for bad in ["Bearer ", "Bearer s3cre", "Bearer s3cret2", "Bearer S3CRET"] {
            assert_eq!(guard.admits(&with(&[bad])), Err(Problem::WrongToken), "{bad}");
        }
        for none in ["s3cret", "Bearer", "Basic s3cret"] {
            assert_eq!(guard.admits(&with(&[none])), Err(Problem::Unauthorised), "{none}");
        }
        assert_eq!(guard.admits(&HeaderMap::new()), Err(Problem::Unauthorised));
        for empty in ["", "\n", " \r\n "] {
            assert!(TokenList::new(Secret::from(empty.to_owned())).is_err(), "{empty:?}");
        }
    }

    #[test]
    fn of_two_headers_none_opens() {
        for second in ["Bearer s3cret", "Bearer other", "Basic x", ""] {
            for both in [["Bearer s3cret", second], [second, "Bearer s3cret"]] {
                assert_eq!(guard("s3cret").admits(&with(&both)), Err(Problem::Unauthorised), "{both:?}");
            }
        }
    }
}
