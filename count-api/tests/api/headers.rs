//! Tests how the API treats headers of requests and answers: hosts, origins, tokens, ids, encodings.

use std::net::SocketAddr;

use tally_count_api::{App, Config};

use crate::counter_writes::written;
use crate::harness::{Api, WRITING, With, ask, ask_with, eventually, get, get_with, post, put, rest, sent, token};

const LIKE: &str = "PUT /v1/posts/p/likes/u HTTP/1.1";

/// Returns the headers of a request whose host any name server may point at this machine.
const ELSEWHERE: &str = "host: evil.example:8080\r\n";

/// Sends a request with these lines after its first. Returns the status, and the problem if there is one.
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
        assert_eq!(asked(api.address, count, "host: localhost\r\n", "").await, (200, None));
        for hosts in ["", "host: localhost\r\nhost: localhost\r\n", "host: localhost\r\nhost: y\r\n"] {
            let bad = (400, Some("bad-host".to_owned()));
            assert_eq!(asked(api.address, count, hosts, "").await, bad, "{hosts:?}");
            assert_eq!(asked(api.address, "GET /nowhere HTTP/1.1", hosts, "").await, bad, "{hosts:?}");
        }
    }
    assert_eq!(asked(api.address, "GET /v1/posts/p/likes HTTP/1.0", "", "").await.0, 200, "1.0 knows no hosts");
    assert_eq!(asked(api.address, "GET /v1/posts/p/likes HTTP/1.0", "host: localhost\r\nhost: y\r\n", "").await.0, 400);
}

#[tokio::test]
async fn a_method_that_no_route_has_is_refused_as_such_whatever_its_body() {
    let api = Api::start(Config::default(), With::default()).await;
    for method in ["TRACE", "PATCH", "BREW"] {
        for body in ["", "{}"] {
            let answer =
                asked(api.address, &format!("{method} /v1/posts/p/likes HTTP/1.1"), "host: localhost\r\n", body).await;
            assert_eq!(answer, (405, Some("no-method".to_owned())), "{method} {body:?}");
        }
    }
    let body = asked(api.address, "GET /v1/posts/p/likes HTTP/1.1", "host: localhost\r\n", "{}").await;
    assert_eq!(body, (400, Some("unexpected-body".to_owned())));
}

#[tokio::test]
async fn a_process_of_a_person_and_one_on_loopback_that_asks_for_no_token_answer_no_other_site() {
    for own_pages in [true, false] {
        let api = Api::wired(Config::default(), WRITING, |app| App { own_pages, ..app }).await;
        let (own, address) = (format!("host: {}\r\n", api.address), api.address);
        let requests = ["GET /v1/posts/p/likes HTTP/1.1", LIKE, "GET /openapi.json HTTP/1.1", "GET /nowhere HTTP/1.1"];
        for request in requests {
            for lines in [
                // A name server may point any name at this machine.
                ELSEWHERE.to_owned(),
                format!("{ELSEWHERE}origin: http://evil.example:8080\r\n"),
                format!("{own}origin: http://evil.example\r\n"),
                format!("{own}origin: null\r\n"),
            ] {
                let foreign = (403, Some("foreign".to_owned()));
                assert_eq!(asked(address, request, &lines, "").await, foreign, "{request} {lines:?}");
            }
        }
        assert_eq!(asked(address, LIKE, &own, "").await.0, 202, "a program");
        assert_eq!(
            asked(address, LIKE, &format!("{own}origin: http://{address}\r\n"), "").await.0,
            202,
            "its own page"
        );
        let named = format!("host: localhost:{}\r\n", address.port());
        assert_eq!(asked(address, "GET /v1/posts/p/likes HTTP/1.1", &named, "").await.0, 200);
    }
}

#[tokio::test]
async fn pages_of_a_named_origin_may_write_to_a_process_on_loopback_and_a_name_that_points_there_may_not() {
    let cors_origins = vec!["https://a.example".to_owned()];
    let api = Api::start(Config { cors_origins, ..Config::default() }, WRITING).await;
    let own = format!("host: {}\r\n", api.address);
    for (lines, code) in [
        (format!("{own}origin: https://a.example\r\n"), 202),
        (own.clone(), 202),
        (format!("{own}origin: https://b.example\r\n"), 403),
        (format!("{ELSEWHERE}origin: http://evil.example\r\n"), 403),
        (format!("{ELSEWHERE}origin: https://a.example\r\n"), 403),
    ] {
        assert_eq!(asked(api.address, LIKE, &lines, "").await.0, code, "{lines:?}");
    }
}

#[tokio::test]
async fn a_process_on_loopback_answers_any_host_where_a_token_or_a_proxy_is_configured() {
    for config in [
        Config { write_token: token("canary-write"), ..Config::default() },
        Config { forwarded_hops: 1, ..Config::default() },
    ] {
        let api = Api::start(config, With::default()).await;
        assert_eq!(asked(api.address, "GET /v1/posts/p/likes HTTP/1.1", ELSEWHERE, "").await, (200, None));
    }
}

#[tokio::test]
async fn writes_are_closed_where_neither_a_token_nor_a_flag_says_who_may_write_and_reads_work() {
    let closed = |app: App| App { config: Config { open_writes: false, ..app.config }, ..app };
    let api = Api::wired(Config::default(), WRITING, closed).await;
    let sum = "/v1/posts/p/counters/views/events";
    let answers = [
        ask(api.address, "PUT", "/v1/posts/p/likes/u").await,
        ask(api.address, "DELETE", "/v1/posts/p/likes/u").await,
        ask(api.address, "PUT", "/v1/posts/p/counters/retweets/members/u").await,
        post(api.address, sum, r#"{"action":"increment"}"#).await,
        put(api.address, "/v1/posts/p/counters/views", r#"{"number_of_shards":2}"#).await,
    ];
    for answer in answers {
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (403, "writes-closed"));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("--open-writes") && detail.contains("--write-token-file"), "{detail}");
    }
    assert_eq!(written(&api, "likes").await, []);
    assert_eq!(get(api.address, "/v1/posts/p/likes").await.status, 200);
}

#[tokio::test]
async fn tokens_change_with_their_file_and_two_are_taken_at_once() {
    let file = std::env::temp_dir().join(format!("tally-tokens-{}", std::process::id()));
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("old\n");
    let (read_token_file, write_token_file) = (Some(file.clone()), Some(file.clone()));
    let api = Api::start(Config { read_token_file, write_token_file, ..Config::default() }, WRITING).await;
    let statuses = async |token: &str| {
        let header = ("authorization", &*format!("Bearer {token}"));
        let read = get_with(api.address, "/v1/posts/p/likes", header).await;
        let write = ask_with(api.address, "PUT", "/v1/posts/p/likes/u", header).await;
        (read.status.as_u16(), write.status.as_u16())
    };
    let (taken, refused) = ((200, 202), (401, 401));
    assert_eq!((statuses("old").await, statuses("new").await), (taken, refused));
    write("old\nnew\n");
    eventually("both tokens are taken", async || (statuses("old").await, statuses("new").await) == (taken, taken))
        .await;
    write("new\n");
    eventually("the old one is not", async || (statuses("old").await, statuses("new").await) == (refused, taken)).await;
    write("");
    std::fs::remove_file(&file).unwrap();
    assert_eq!((statuses("old").await, statuses("new").await, statuses("").await), (refused, taken, refused));
}

#[tokio::test]
async fn a_request_keeps_the_id_it_came_with_if_it_can_be_logged() {
    let api = Api::start(Config::default(), With::default()).await;
    for (given, kept) in [("abc-1.2_3:4", true), ("a b", false), ("\"x\"", false), (&"a".repeat(65), false)] {
        let answer = get_with(api.address, "/v1/posts/p/likes", ("x-request-id", given)).await;
        assert_eq!(answer.header("x-request-id") == Some(given), kept, "{given}");
        assert!(answer.header("x-request-id").is_some());
    }
}

#[tokio::test]
async fn pages_of_named_origins_may_read_and_others_may_not() {
    let cors_origins = vec!["https://a.example".to_owned()];
    let api = Api::start(Config { cors_origins, ..Config::default() }, With::default()).await;
    for (origin, allowed) in [("https://a.example", true), ("https://b.example", false)] {
        let answer = get_with(api.address, "/v1/posts/p/likes", ("origin", origin)).await;
        assert_eq!(answer.header("access-control-allow-origin") == Some(origin), allowed, "{origin}");
    }
}

#[tokio::test]
async fn a_large_answer_is_compressed_for_those_who_take_it() {
    let api = Api::start(Config::default(), With::default()).await;
    for (target, encoding) in [("/openapi.json", Some("gzip")), ("/v1/posts/p/likes", None)] {
        let answer = get_with(api.address, target, ("accept-encoding", "gzip")).await;
        assert_eq!(answer.header("content-encoding"), encoding, "{target}");
    }
}
