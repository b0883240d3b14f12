//! URLs of an engine.

use http::Uri;

/// Checks that `url` is one of an engine: the SDK takes another for none, and asks the real service.
///
/// # Errors
/// What it has to look like.
pub fn check_endpoint(url: &str) -> Result<(), &'static str> {
    let uri = url.parse::<Uri>().ok();
    let is_endpoint = uri.is_some_and(|uri| {
        let address = uri.authority().is_some_and(|authority| {
            let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
            !authority.host().is_empty() && authority.as_str() == format!("{}{port}", authority.host()) && port != ":0"
        });
        matches!(uri.scheme_str(), Some("http" | "https")) && address
    });
    if is_endpoint { Ok(()) } else { Err("not a URL such as http://127.0.0.1:8000") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_perhaps_a_port() {
        for good in ["http://127.0.0.1:8000", "http://[::1]:8000/", "https://dynamodb.eu-west-1.amazonaws.com"] {
            assert_eq!(check_endpoint(good), Ok(()), "{good}");
        }
        for bad in ["", "x", "127.0.0.1:8000", "http://", "http://:8000", "http://h:99999", "http://h:0", "http://h:x"]
        {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
        for bad in ["ftp://h", "http://u:p@h:1", "http:// h", "redis://h"] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
    }
}
