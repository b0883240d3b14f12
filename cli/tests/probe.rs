//! Tests `tally probe`, which asks a service whether it is well, and `tally canary`, which measures how long a like
//! takes until a read shows it, against an API that the test serves itself.

#![cfg(test)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tally_testkit::process::{Done, command, run};

async fn tally(args: &[&str]) -> Done {
    run(command(env!("CARGO_BIN_EXE_tally")).args(args)).await
}

async fn canary(api: &str, more: &[&str]) -> Done {
    tally(&[&["canary", api, "--every", "0"], more].concat()).await
}

/// Starts an API that answers with what `answer` makes of a method. Returns its address and the heads of the requests.
fn api(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client connects");
            let head = head(&mut stream);
            let said = answer(head.split(' ').next().expect("a method"));
            kept.lock().expect("no test panics with it").push(head);
            stream.write_all(said.as_bytes()).expect("the client listens");
        }
    });
    (url, heads)
}

fn head(stream: &mut TcpStream) -> String {
    let (mut asked, mut part) = (String::new(), [0; 1024]);
    while !asked.ends_with("\r\n\r\n") {
        let read = stream.read(&mut part).expect("a client asks");
        asked.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    asked
}

/// Starts a service that answers everything with `text`.
fn says(text: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let (url, heads) = api(|_| text.to_owned());
    (format!("{url}/livez"), heads)
}

fn count(likes: u64) -> String {
    format!("HTTP/1.1 200 OK\r\n\r\n{{\"post_id\":\"tally-canary\",\"likes\":{likes},\"exact\":true}}")
}

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\n\r\n{}";

#[tokio::test]
async fn a_healthy_service_is_0_and_silent() {
    let (url, heads) = says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let done = tally(&["probe", &url]).await;
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "", ""));
    let heads = heads.lock().expect("it answered");
    assert!(heads[0].starts_with("GET /livez HTTP/1.0\r\nHost: 127.0.0.1:"), "{heads:?}");
}

#[tokio::test]
async fn another_answer_is_1_and_is_repeated() {
    let (url, _) = says("HTTP/1.1 503 Service Unavailable\r\n\r\nthe fence is not read\n");
    let done = tally(&["probe", &url]).await;
    assert_eq!((done.code, done.err), (Some(1), format!("tally: {url} answers 503: the fence is not read\n")));
}

#[tokio::test]
async fn no_connection_no_answer_and_no_http_are_69() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = format!("http://{}/livez", listener.local_addr().expect("it is bound"));
    assert_eq!(tally(&["probe", &silent, "--within", "1"]).await.code, Some(69));
    drop(listener);
    assert_eq!(tally(&["probe", &silent]).await.code, Some(69), "nothing listens there any more");
    let (url, _) = says("SSH-2.0-OpenSSH\r\n");
    assert_eq!(tally(&["probe", &url]).await.code, Some(69));
}

#[tokio::test]
async fn a_wrong_command_line_is_2() {
    for wrong in
        [&["probe"][..], &["probe", "https://127.0.0.1/"], &["probe", "http://h", "--within", "0"], &["prob"], &[]]
    {
        assert_eq!(tally(wrong).await.code, Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn likes_and_unlikes_in_turn_and_each_is_seen() {
    let liked = Mutex::new(false);
    let (url, heads) = api(move |method| {
        let mut liked = liked.lock().expect("no test panics with it");
        match method {
            "GET" => return count(u64::from(*liked)),
            other => *liked = other == "PUT",
        }
        ACCEPTED.to_owned()
    });
    let done = canary(&url, &["--rounds", "3", "--write-token", "w", "--read-token", "r"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let heads = heads.lock().expect("the API is quiet");
    let writes: Vec<&str> =
        heads.iter().filter(|head| !head.starts_with("GET")).map(|head| head.split(' ').next().unwrap()).collect();
    assert_eq!(writes, ["PUT", "DELETE", "PUT"]);
    assert!(heads[0].starts_with("GET /v1/posts/tally-canary/likes HTTP/1.0\r\n"), "{}", heads[0]);
    assert!(heads[0].contains("Authorization: Bearer r\r\n"), "{}", heads[0]);
    assert!(heads[1].starts_with("PUT /v1/posts/tally-canary/likes/tally-canary HTTP/1.0\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("Authorization: Bearer w\r\nContent-Length: 0\r\n"), "{}", heads[1]);
}

#[tokio::test]
async fn a_round_names_the_step_that_failed() {
    let unseen = api(|method| if method == "GET" { count(0) } else { ACCEPTED.to_owned() });
    let refused =
        api(|method| if method == "GET" { count(0) } else { "HTTP/1.1 401 Unauthorized\r\n\r\nno token".to_owned() });
    let away = api(|_| "HTTP/1.1 503 Service Unavailable\r\n\r\nstore-away".to_owned());
    for ((url, _), said) in [
        (unseen, "tally: seen: no read has shown it within 1 s\n"),
        (refused, "tally: write: PUT is answered 401: no token\n"),
        (away, "tally: read: GET is answered 503: store-away\n"),
    ] {
        let done = canary(&url, &["--rounds", "1", "--within", "1"]).await;
        assert_eq!((done.code, done.err.as_str()), (Some(1), said));
    }
}

#[tokio::test]
async fn an_address_that_is_taken_ends_it_with_78() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = taken.local_addr().expect("it is bound").to_string();
    let done = canary("http://127.0.0.1:9", &["--rounds", "1", "--listen", &listen]).await;
    assert_eq!(done.code, Some(78), "{done:?}");
}
