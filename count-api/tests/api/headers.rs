//! What requests and answers say in their headers: hosts, origins, ids, encodings.

use std::net::SocketAddr;

use http_body_util::Full;
use tally_count_api::Config;

use crate::harness::{Api, With, request, rest, send, sent};

/// Sends a request with these lines behind its first; the status, and the problem where there is one.
async fn asked(address: SocketAddr, first: &str, lines: &str, body: &str) -> (u16, Option<String>) {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let request = format!("{first}\r\n{lines}{length}connection: close\r\n\r\n{body}");
    let answer = rest(sent(address, request).await).await;
    let problem = answer.split_once("urn:tally:problem:").and_then(|(_, rest)| rest.split('"').next());
    (answer[9..12].parse().unwrap(), problem.map(str::to_owned))
}

#[tokio::test]
async fn a_request_names_one_host_on_the_short_way_too() {
    let api = Api::start(Config::default(), With::default()).await;
    let count = "GET /v1/posts/p/likes HTTP/1.1";
    for _ in 0..2 {
        assert_eq!(asked(api.address, count, "host: x\r\n", "").await, (200, None));
        for hosts in ["", "host: x\r\nhost: x\r\n", "host: x\r\nhost: y\r\n"] {
            let bad = (400, Some("bad-host".to_owned()));
            assert_eq!(asked(api.address, count, hosts, "").await, bad, "{hosts:?}");
            assert_eq!(asked(api.address, "GET /nowhere HTTP/1.1", hosts, "").await, bad, "{hosts:?}");
        }
    }
    assert_eq!(asked(api.address, "GET /v1/posts/p/likes HTTP/1.0", "", "").await.0, 200, "1.0 knows no hosts");
    assert_eq!(asked(api.address, "GET /v1/posts/p/likes HTTP/1.0", "host: x\r\nhost: y\r\n", "").await.0, 400);
}

#[tokio::test]
async fn a_method_that_no_route_has_is_refused_as_such_whatever_its_body() {
    let api = Api::start(Config::default(), With::default()).await;
    for method in ["TRACE", "PATCH", "BREW"] {
        for body in ["", "{}"] {
            let answer = asked(api.address, &format!("{method} /v1/posts/p/likes HTTP/1.1"), "host: x\r\n", body).await;
            assert_eq!(answer, (405, Some("no-method".to_owned())), "{method} {body:?}");
        }
    }
    let body = asked(api.address, "GET /v1/posts/p/likes HTTP/1.1", "host: x\r\n", "{}").await;
    assert_eq!(body, (400, Some("unexpected-body".to_owned())));
}

#[tokio::test]
async fn a_process_for_its_own_pages_answers_no_other_site() {
    let api = Api::for_own_pages(With { writes: true, ..With::default() }).await;
    let (own, address) = (format!("host: {}\r\n", api.address), api.address);
    let like = "PUT /v1/posts/p/likes/u HTTP/1.1";
    let requests = ["GET /v1/posts/p/likes HTTP/1.1", like, "GET /openapi.json HTTP/1.1", "GET /nowhere HTTP/1.1"];
    for request in requests {
        for lines in [
            // A name server may point any name at this machine.
            "host: evil.example:8080\r\n".to_owned(),
            "host: evil.example:8080\r\norigin: http://evil.example:8080\r\n".to_owned(),
            format!("{own}origin: http://evil.example\r\n"),
            format!("{own}origin: null\r\n"),
        ] {
            let foreign = (403, Some("foreign".to_owned()));
            assert_eq!(asked(address, request, &lines, "").await, foreign, "{request} {lines:?}");
        }
    }
    assert_eq!(asked(address, like, &own, "").await.0, 202, "a program");
    assert_eq!(asked(address, like, &format!("{own}origin: http://{address}\r\n"), "").await.0, 202, "its own page");
    let named = format!("host: localhost:{}\r\n", address.port());
    assert_eq!(asked(address, "GET /v1/posts/p/likes HTTP/1.1", &named, "").await.0, 200);
}

#[tokio::test]
async fn a_request_keeps_the_id_it_came_with_if_it_can_be_logged() {
    let api = Api::start(Config::default(), With::default()).await;
    for (given, kept) in [("abc-1.2_3:4", true), ("a b", false), ("\"x\"", false), (&"a".repeat(65), false)] {
        let request = request("GET", "/v1/posts/p/likes").header("x-request-id", given);
        let answer = send(api.address, request.body(Full::default()).unwrap()).await;
        assert_eq!(answer.header("x-request-id") == Some(given), kept, "{given}");
        assert!(answer.header("x-request-id").is_some());
    }
}

#[tokio::test]
async fn pages_of_named_origins_may_read_and_others_may_not() {
    let cors = Some(tower_http::cors::AllowOrigin::list(["https://a.example".parse().unwrap()]));
    let api = Api::start(Config { cors, ..Config::default() }, With::default()).await;
    for (origin, allowed) in [("https://a.example", true), ("https://b.example", false)] {
        let request = request("GET", "/v1/posts/p/likes").header("origin", origin);
        let answer = send(api.address, request.body(Full::default()).unwrap()).await;
        assert_eq!(answer.header("access-control-allow-origin") == Some(origin), allowed, "{origin}");
    }
}

#[tokio::test]
async fn a_large_answer_is_compressed_for_those_who_take_it() {
    let api = Api::start(Config::default(), With::default()).await;
    let asked = |target: &str| request("GET", target).header("accept-encoding", "gzip").body(Full::default()).unwrap();
    let large = send(api.address, asked("/openapi.json")).await;
    assert_eq!(large.header("content-encoding"), Some("gzip"));
    let small = send(api.address, asked("/v1/posts/p/likes")).await;
    assert_eq!(small.header("content-encoding"), None);
}
