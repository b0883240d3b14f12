//! Protects the control commands from web pages of other sites. Any page that is open in a browser can send requests to
//! loopback, and any name server can resolve the page's name to it (DNS rebinding).

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};

/// The status and the reason with which a request is refused.
pub(crate) type Refusal = (StatusCode, &'static str);

/// Refuses a command that a page of another site can send. `here` is the local address of the connection.
pub(crate) fn check(head: &Parts, here: Option<IpAddr>) -> Result<(), Refusal> {
    own(head, here).map_err(|why| (StatusCode::FORBIDDEN, why))?;
    // A page can post a form or plain text to another site without a preflight request, but not JSON.
    if head.method == Method::POST && !head.headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "a command has the content type application/json"));
    }
    Ok(())
}

/// Refuses any request of a page of another site. A program that names no host is accepted.
pub(crate) fn check_sender(head: &Parts, here: Option<IpAddr>) -> Result<(), Refusal> {
    if !head.headers.contains_key(HOST) && !head.headers.contains_key(ORIGIN) {
        return Ok(());
    }
    own(head, here).map_err(|why| (StatusCode::FORBIDDEN, why))
}

fn own(head: &Parts, here: Option<IpAddr>) -> Result<(), &'static str> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(text), hosts.next()) else {
        return Err("the request names no host, or several");
    };
    let other = |authority: &http::uri::Authority| !authority.as_str().eq_ignore_ascii_case(&host);
    if !is_certain(&host, here) || head.uri.authority().is_some_and(other) {
        return Err("the host is not this machine's loopback, nor the address of this server");
    }
    // A browser always sends the origin of the page with a POST; a program sends none.
    let same = |origin| text(origin).is_some_and(|origin| origin.strip_prefix("http://") == Some(&host));
    if head.headers.get_all(ORIGIN).iter().all(same) { Ok(()) } else { Err("another page sent the request") }
}

fn text(value: &HeaderValue) -> Option<String> {
    value.to_str().ok().map(str::to_ascii_lowercase)
}

/// Whether `host` is loopback or this server, without asking a name server.
fn is_certain(host: &str, here: Option<IpAddr>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_own = |address: IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || here.is_some_and(|here| here.to_canonical() == address)
    };
    name == "localhost" || name.ends_with(".localhost") || address.parse().is_ok_and(is_own)
}

fn is_json(value: &HeaderValue) -> bool {
    text(value).is_some_and(|value| value.split(';').next().is_some_and(|kind| kind.trim() == "application/json"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const JSON: (&str, &str) = ("content-type", "application/json");

    fn posted(headers: &[(&str, &str)]) -> Result<(), StatusCode> {
        let request = headers
            .iter()
            .fold(Request::post("/_control/trim"), |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, Some([192, 0, 2, 7].into())).map_err(|(status, _)| status)
    }

    #[test]
    fn a_program_and_a_page_of_this_server_may_send_commands() {
        for host in [
            "127.0.0.1:8000",
            "127.0.0.1",
            "127.1.2.3:8000",
            "localhost:8000",
            "LOCALHOST",
            "tally.localhost:1",
            "[::1]:8000",
            "[::1]",
            "[::ffff:127.0.0.1]:8000",
            "192.0.2.7:8000",
        ] {
            assert_eq!(posted(&[("host", host), JSON]), Ok(()), "{host}");
            assert_eq!(posted(&[("host", host), ("origin", &format!("http://{host}")), JSON]), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_command_to_a_name_that_resolves_to_this_server_is_refused() {
        for host in [
            "evil.example:8000",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8000",
            "evillocalhost",
            "192.0.2.8:8000",
            "0.0.0.0:8000",
            "",
            ":8000",
            "localhost:8000@evil.example",
        ] {
            assert_eq!(posted(&[("host", host), JSON]), Err(StatusCode::FORBIDDEN), "{host}");
            let same = format!("http://{host}");
            assert_eq!(posted(&[("host", host), ("origin", &same), JSON]), Err(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(posted(&[JSON]), Err(StatusCode::FORBIDDEN), "no host");
        let two = [("host", "localhost"), ("host", "evil.example"), JSON];
        assert_eq!(posted(&two), Err(StatusCode::FORBIDDEN), "two hosts");
        let (mut head, ()) = Request::get("http://evil.example/_control/stats").body(()).unwrap().into_parts();
        head.headers.insert(HOST, HeaderValue::from_static("localhost"));
        assert!(check(&head, None).is_err(), "another host in the request's line");
    }

    #[test]
    fn a_command_of_a_page_of_another_site_is_refused() {
        let host = ("host", "127.0.0.1:8000");
        for origin in [
            "http://evil.example",
            "null",
            "",
            "https://127.0.0.1:8000",
            "http://127.0.0.1:9",
            "http://localhost:8000",
            "http://127.0.0.1:8000.evil.example",
        ] {
            assert_eq!(posted(&[host, ("origin", origin), JSON]), Err(StatusCode::FORBIDDEN), "{origin}");
        }
        let two = [host, ("origin", "http://127.0.0.1:8000"), ("origin", "http://evil.example"), JSON];
        assert_eq!(posted(&two), Err(StatusCode::FORBIDDEN));
    }

    #[test]
    fn a_command_that_a_form_can_send_is_refused() {
        let host = ("host", "localhost:8000");
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; application/json",
            "",
        ] {
            assert_eq!(posted(&[host, ("content-type", kind)]), Err(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{kind}");
        }
        assert_eq!(posted(&[host]), Err(StatusCode::UNSUPPORTED_MEDIA_TYPE), "no type");
        assert_eq!(posted(&[host, ("content-type", "Application/JSON; charset=utf-8")]), Ok(()));
    }
}
