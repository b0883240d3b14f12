//! `tally canary`, which measures how long a like takes until a read shows it. In each round it likes or unlikes a post
//! of its own over the API, and reads the count until it has changed. So it measures the pipeline from one end to the
//! other, which no service can see by itself.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;

use crate::metrics::Measured;
use crate::probe::{Found, Target, now};

/// The pause between two reads of the count, while the canary waits for its like.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct Canary {
    /// The API, without TLS: http://127.0.0.1:8080
    api: Target,

    /// The post that is liked; no other canary, and no person, likes it
    #[arg(long, default_value = "tally-canary", value_parser = id, value_name = "ID")]
    post: String,

    /// Who likes it
    #[arg(long, default_value = "tally-canary", value_parser = id, value_name = "ID")]
    user: String,

    /// The token that writing takes; in production this variable alone
    #[arg(long, env = "TALLY_WRITE_TOKEN", hide_env_values = true, value_parser = token, value_name = "TOKEN")]
    write_token: Option<String>,

    /// The token that reading takes; in production this variable alone
    #[arg(long, env = "TALLY_READ_TOKEN", hide_env_values = true, value_parser = token, value_name = "TOKEN")]
    read_token: Option<String>,

    /// Pause between two rounds
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    every: u64,

    /// How long a like may take until a read shows it; longer is a round that failed
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    within: u64,

    /// Rounds to make; without it, it goes on until it is ended
    #[arg(long, value_name = "COUNT")]
    rounds: Option<NonZeroU64>,

    /// Where /metrics is served, as 127.0.0.1:9096; without it nowhere
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
}

/// The step at which a round failed, and why.
struct Failed(&'static str, String);

impl Canary {
    /// Makes the rounds. Returns how many of them failed.
    ///
    /// # Errors
    /// Metrics cannot be served at the address of `--listen`.
    pub(crate) fn run(&self, mut say: impl FnMut(&str)) -> io::Result<u64> {
        let measured = Measured::default();
        if let Some(address) = self.listen {
            measured.serve(address)?;
        }
        let (mut round, mut failed) = (0, 0);
        while self.rounds.is_none_or(|rounds| round < rounds.get()) {
            if round > 0 {
                pause(Duration::from_secs(self.every));
            }
            round += 1;
            match self.round(&measured) {
                Ok(took) => say(&format!("seen after {} ms", took.as_millis())),
                Err(Failed(step, why)) => {
                    failed += 1;
                    measured.failed(step);
                    say(&format!("{step}: {why}"));
                }
            }
        }
        Ok(failed)
    }

    /// Likes the post, or unlikes it if it is liked, and waits until a read shows it. Returns how long this took.
    fn round(&self, measured: &Measured) -> Result<Duration, Failed> {
        let within = Duration::from_secs(self.within);
        let liked = self.count(within).map_err(|why| Failed("read", why))? > 0;
        let began = now();
        measured.begin(began);
        let ended = self.say(!liked, within).and_then(|()| self.seen(!liked, began + within));
        measured.end(now(), ended.is_ok());
        ended.map(|()| now() - began)
    }

    fn say(&self, liked: bool, within: Duration) -> Result<(), Failed> {
        let (method, path) = (if liked { "PUT" } else { "DELETE" }, format!("{}/{}", self.path(), self.user));
        let headers = format!("{}Content-Length: 0\r\n", bearer(self.write_token.as_deref()));
        match self.api.send(method, &path, &headers, within) {
            Ok(Found { status: 202, .. }) => Ok(()),
            Ok(Found { status, body, .. }) => Err(Failed("write", format!("{method} is answered {status}: {body}"))),
            Err(error) => Err(Failed("write", format!("{method} is not answered: {error}"))),
        }
    }

    fn seen(&self, liked: bool, deadline: std::time::Instant) -> Result<(), Failed> {
        loop {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(Failed("seen", format!("no read has shown it within {} s", self.within)));
            }
            // A read that fails is repeated, as long as there is time.
            if self.count(left).is_ok_and(|count| (count > 0) == liked) {
                return Ok(());
            }
            pause(LOOK_EVERY);
        }
    }

    /// Reads how many likes the post has.
    fn count(&self, within: Duration) -> Result<u64, String> {
        match self.api.send("GET", &self.path(), &bearer(self.read_token.as_deref()), within) {
            Ok(Found { status: 200, body, .. }) => likes(&body).ok_or_else(|| format!("no count in {body}")),
            Ok(Found { status, body, .. }) => Err(format!("GET is answered {status}: {body}")),
            Err(error) => Err(format!("GET is not answered: {error}")),
        }
    }

    fn path(&self) -> String {
        format!("/v1/posts/{}/likes", self.post)
    }
}

fn bearer(token: Option<&str>) -> String {
    token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime whose thread it could block")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Finds the count in an answer of the API.
fn likes(body: &str) -> Option<u64> {
    let (_, rest) = body.split_once("\"likes\":")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Parses an id that needs no escape in a path.
fn id(text: &str) -> Result<String, &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if text.is_empty() || text.len() > 256 || !text.bytes().all(is_plain) {
        return Err("letters, digits, `-`, `.`, `_` and `~`, 256 at most");
    }
    Ok(text.to_owned())
}

/// Parses a token that may be in a header.
fn token(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token has visible characters alone");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_from_an_answer() {
        assert_eq!(likes(r#"{"post_id":"p","likes":12,"version":3}"#), Some(12));
        assert_eq!(likes(r#"{"post_id":"likes","likes": 0}"#), Some(0));
        for other in ["", "{}", r#"{"likes":null}"#, r#"{"likes":-1}"#] {
            assert_eq!(likes(other), None, "{other}");
        }
    }

    #[test]
    fn what_could_leave_its_place_in_a_request_is_refused() {
        assert!(["", "a/b", "a?b", "a b", "a\r\nb", "é"].iter().all(|text| id(text).is_err()));
        assert!(["", "a b", "a\r\nHost: b"].iter().all(|text| token(text).is_err()));
        assert_eq!((id("p-1._~"), token("s3cret=")), (Ok("p-1._~".to_owned()), Ok("s3cret=".to_owned())));
    }
}
