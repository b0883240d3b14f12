//! Limits HTTP requests to the API: each must stay within its client's rate, and then have the token of its group of
//! routes. A [`Gate`] checks both.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tally_service::{Host, Stage, Stop};

use crate::auth::Guard;
use crate::error::{Problem, Result};

/// How often quiet clients are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(30);

/// The address that a connection came from. The listener puts it into each request; clones share its text.
#[derive(Clone, Debug)]
pub struct Peer {
    address: IpAddr,
    text: Arc<str>,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        // Formatted once for a connection, not for every log line.
        Self { address, text: address.to_string().into() }
    }
}

impl Peer {
    /// Returns the address as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// How many requests a second one client may make; it may make as many at once.
#[derive(Clone)]
pub struct Rate {
    limiter: Option<Arc<DefaultKeyedRateLimiter<IpAddr>>>,
    hops: usize,
}

impl Rate {
    /// Allows each client `per_second` requests a second, or any number if that is 0. `hops` of our own proxies are in
    /// front.
    pub fn new(per_second: u32, hops: usize) -> Self {
        let limiter = NonZeroU32::new(per_second).map(|rate| Arc::new(RateLimiter::keyed(Quota::per_second(rate))));
        Self { limiter, hops }
    }

    /// Starts a task that forgets clients that have been quiet, which bounds the memory.
    pub(crate) fn follow(&self, host: &Host) {
        let (Some(limiter), clock) = (self.limiter.clone(), host.clock()) else { return };
        host.spawn(Stage::Support, "forgetting", move |stop: Stop| async move {
            while stop.unless_requested(clock.sleep(FORGET_EVERY)).await.is_ok() {
                limiter.retain_recent();
                limiter.shrink_to_fit();
            }
            Ok(())
        });
    }

    /// Counts a request from `peer` with these headers, or returns an error if its client has made too many.
    pub fn admit(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<()> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let client = client(peer.map(|peer| peer.address), headers, self.hops);
        limiter
            .check_key(&network(client))
            .map_err(|denied| Problem::RateLimited { after: denied.wait_time_from(DefaultClock::default().now()) })
    }
}

/// Returns the client: the peer, or the address that was told to the first of our own `hops` proxies. Anyone may have
/// written what is further left in the header.
fn client(peer: Option<IpAddr>, headers: &HeaderMap, hops: usize) -> IpAddr {
    let forwarded = || {
        let last = headers.get_all(header::HeaderName::from_static("x-forwarded-for")).iter().next_back()?;
        let mut addresses = last.to_str().ok()?.rsplit(',');
        address(addresses.nth(hops - 1)?.trim())
    };
    let forwarded = if hops == 0 { None } else { forwarded() };
    forwarded.or(peer).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
}

/// Parses an address as proxies write it: bare, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()))
}

/// Returns what counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address, which one subscriber
/// gets.
fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        },
    }
}

/// What a group of routes requires. The rate applies also without a valid token, so that nobody can guess tokens
/// quickly.
#[derive(Clone)]
pub struct Gate {
    pub rate: Rate,
    pub guard: Guard,
}

impl Gate {
    /// Returns an error unless a request from `peer` with these headers may pass. The request counts towards the rate.
    pub fn admits(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<()> {
        self.rate.admit(peer, headers)?;
        self.guard.admits(headers)
    }

    /// Puts `routes` behind this gate.
    pub fn before<S: Clone + Send + Sync + 'static>(self, routes: Router<S>) -> Router<S> {
        let stands_open = self.rate.limiter.is_none() && !self.guard.is_closed();
        if stands_open { routes } else { routes.route_layer(from_fn_with_state(self, pass)) }
    }
}

/// Lets a request pass or refuses it. An answer that is a stream ends once the request's token is withdrawn.
async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if let Err(problem) = gate.admits(request.extensions().get(), request.headers()) {
        return problem.into_response();
    }
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    let answer = next.run(request).await;
    match authorization {
        Some(given) if is_stream(&answer) => answer
            .map(|events| Body::from_stream(events.into_data_stream().take_until(gate.guard.until_refused(given)))),
        _ => answer,
    }
}

fn is_stream(answer: &Response) -> bool {
    answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_is_its_peer_unless_proxies_of_ours_say_otherwise() {
        let peer = Some("10.0.0.9".parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 1.2.3.4, 10.0.0.1"));
        let asked = |hops| client(peer, &headers, hops).to_string();
        assert_eq!(asked(0), "10.0.0.9", "a header that any client can write says nothing");
        assert_eq!(asked(1), "10.0.0.1");
        assert_eq!(asked(2), "1.2.3.4");
        assert_eq!(asked(9), "10.0.0.9");
        assert_eq!(client(None, &HeaderMap::new(), 1), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }

    #[test]
    fn an_address_is_read_in_every_form_that_proxies_write() {
        for (text, read) in [
            ("1.2.3.4", Some("1.2.3.4")),
            ("1.2.3.4:56789", Some("1.2.3.4")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("unknown", None),
            ("1.2.3.4:x", None),
            ("", None),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), read, "{text}");
        }
    }

    #[test]
    fn an_ipv6_subscriber_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("::ffff:1.2.3.4"), "1.2.3.4");
        assert_eq!(of("1.2.3.4"), "1.2.3.4");
    }

    #[test]
    fn a_client_past_its_rate_is_refused_and_others_are_not() {
        let rate = Rate::new(2, 0);
        let from = |address: &str| {
            let peer = Peer::from(address.parse::<IpAddr>().unwrap());
            rate.admit(Some(&peer), &HeaderMap::new())
        };
        assert_eq!((from("1.1.1.1"), from("1.1.1.1")), (Ok(()), Ok(())));
        assert!(matches!(from("1.1.1.1"), Err(Problem::RateLimited { .. })));
        assert_eq!(from("2.2.2.2"), Ok(()));
        assert!(Rate::new(0, 0).admit(None, &HeaderMap::new()).is_ok());
    }
}
