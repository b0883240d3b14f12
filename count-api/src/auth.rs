//! Checks bearer tokens. Each group of routes has a [`Guard`] with one or more, which are compared in constant time,
//! and read again when their file changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use parking_lot::RwLock;
use subtle::{Choice, ConstantTimeEq};
use tally_service::{Host, Secret, Stage, Stop};
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
    Asking(Arc<RwLock<TokenList>>),
}

impl Guard {
    /// Admits requests with one of `tokens`, or all if there are none.
    pub fn new(tokens: Option<TokenList>) -> Self {
        tokens.map_or(Self::Open, |tokens| Self::Asking(Arc::new(RwLock::new(tokens))))
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
        let Some(file) = tokens.read().file.clone() else { return };
        host.spawn(Stage::Support, "tokens", move |stop: Stop| async move {
            let mut failed = false;
            while stop.unless_requested(clock.sleep(READ_EVERY)).await.is_ok() {
                let file = file.clone();
                match spawn_blocking(|| TokenList::read(file)).await? {
                    Ok(read) => {
                        failed = false;
                        if read.text != tokens.read().text {
                            tracing::info!(file = ?read.file, "the tokens have changed");
                            *tokens.write() = read;
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
        let given = bearer(headers).ok_or(Problem::Unauthorised)?;
        let tokens = tokens.read();
        let is_one = lines(&tokens.text).fold(Choice::from(0), |found, token| found | given.ct_eq(token));
        if is_one.into() { Ok(()) } else { Err(Problem::WrongToken) }
    }
}

/// Returns the token of a request. With two headers there is none, since a proxy may have checked either.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

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

    #[test]
    fn without_a_token_everything_is_open() {
        assert_eq!(Guard::new(None).admits(&HeaderMap::new()), Ok(()));
        assert!(!Guard::new(None).is_closed());
    }
}
