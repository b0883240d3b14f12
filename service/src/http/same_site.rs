//! Refuses requests from other web sites. Any page that is open in a browser can send requests to loopback, and any
//! name server can point a name there (DNS rebinding).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Accepts a request whose host is certain to be this machine and which, if a web page sent it, comes from a page of
/// that same host or of an origin that `is_named`. Programs send no `Origin`, and those of HTTP/1.0 no `Host` either;
/// every browser sends a host.
///
/// # Errors
/// The reason for which the request is refused.
pub fn check(headers: &HeaderMap, is_named: impl FnOnce(&str) -> bool) -> Result<(), &'static str> {
    let host = match headers.get(header::HOST).map(|host| host.to_str().ok().filter(|host| is_certain(host))) {
        Some(None) => return Err("the host name may belong to another site"),
        host => host.flatten(),
    };
    // A browser sends the origin of the page, except where a page reads from its own host.
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let Ok(origin) = origin.to_str() else { return Err("the request comes from another site") };
    let same = |host| origin.strip_prefix("http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host));
    (host.is_some_and(same) || is_named(origin)).then_some(()).ok_or("the request comes from another site")
}

/// Answers 403 to what [`check`] refuses.
pub async fn alone(request: Request, next: Next) -> Response {
    match check(request.headers(), |_| false) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
    }
}

/// Returns whether `host` is an address, or a name for loopback that no name server is asked about.
fn is_certain(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let domain = name.rsplit_once('.').map_or(name, |(_, domain)| domain);
    domain.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, origin: Option<&str>) -> Result<(), &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&headers, |_| false)
    }

    #[test]
    fn our_page_and_programs_are_accepted() {
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "tally.localhost", "LOCALHOST:8080", "[::1]"] {
            assert_eq!(asked(host, None), Ok(()), "{host}");
            assert_eq!(asked(host, Some(&format!("http://{host}"))), Ok(()), "{host}");
        }
    }

    #[test]
    fn other_pages_are_refused() {
        for origin in
            ["http://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:9", "http://localhost:8080"]
        {
            assert!(asked("127.0.0.1:8080", Some(origin)).is_err(), "{origin}");
        }
    }

    #[test]
    fn a_name_that_resolves_to_loopback_is_refused() {
        for host in ["evil.example:8080", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", ""] {
            assert!(asked(host, Some(&format!("http://{host}"))).is_err(), "{host}");
            assert!(asked(host, None).is_err(), "{host}");
        }
        assert_eq!(check(&HeaderMap::new()), Ok(()), "no browser leaves it out");
    }
}
