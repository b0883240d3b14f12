//! `tally canary` against an API of this test's own, which counts the likes of one post.

#![cfg(test)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

fn canary(api: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command
        .args(["canary", api, "--every", "0"])
        .args(more)
        .env_remove("TALLY_WRITE_TOKEN")
        .env_remove("TALLY_READ_TOKEN");
    command.output().expect("the program starts")
}

/// An API that answers as `answer` says, given the method and how often it was asked; gives its address and the heads of requests.
fn api(answer: impl Fn(&str, usize) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client connects");
            let head = head(&mut stream);
            let mut heads = kept.lock().expect("no test panics with it");
            let said = answer(head.split(' ').next().expect("a method"), heads.len());
            heads.push(head);
            drop(heads);
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

fn count(likes: u64) -> String {
    format!("HTTP/1.1 200 OK\r\n\r\n{{\"post_id\":\"tally-canary\",\"likes\":{likes},\"exact\":true}}")
}

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\n\r\n{}";

#[test]
fn likes_and_unlikes_in_turn_and_each_is_seen() {
    let liked = Mutex::new(false);
    let (url, heads) = api(move |method, _| {
        let mut liked = liked.lock().expect("no test panics with it");
        match method {
            "GET" => return count(u64::from(*liked)),
            other => *liked = other == "PUT",
        }
        ACCEPTED.to_owned()
    });
    let done = canary(&url, &["--rounds", "3", "--write-token", "w", "--read-token", "r"]);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let heads = heads.lock().expect("the API is quiet");
    let writes: Vec<&str> =
        heads.iter().filter(|head| !head.starts_with("GET")).map(|head| head.split(' ').next().unwrap()).collect();
    assert_eq!(writes, ["PUT", "DELETE", "PUT"]);
    assert!(heads[0].starts_with("GET /v1/posts/tally-canary/likes HTTP/1.0\r\n"), "{}", heads[0]);
    assert!(heads[0].contains("Authorization: Bearer r\r\n"), "{}", heads[0]);
    assert!(heads[1].starts_with("PUT /v1/posts/tally-canary/likes/tally-canary HTTP/1.0\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("Authorization: Bearer w\r\nContent-Length: 0\r\n"), "{}", heads[1]);
}

#[test]
fn a_round_names_the_step_that_failed() {
    let unseen = api(|method, _| if method == "GET" { count(0) } else { ACCEPTED.to_owned() });
    let refused = api(
        |method, _| if method == "GET" { count(0) } else { "HTTP/1.1 401 Unauthorized\r\n\r\nno token".to_owned() },
    );
    let away = api(|_, _| "HTTP/1.1 503 Service Unavailable\r\n\r\nstore-away".to_owned());
    for ((url, _), said) in [
        (unseen, "tally: seen: no read has shown it within 1 s\n"),
        (refused, "tally: write: PUT is answered 401: no token\n"),
        (away, "tally: read: GET is answered 503: store-away\n"),
    ] {
        let done = canary(&url, &["--rounds", "1", "--within", "1"]);
        assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(1), said));
    }
}

#[test]
fn an_address_that_is_taken_ends_it_with_78() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = taken.local_addr().expect("it is bound").to_string();
    let done = canary("http://127.0.0.1:9", &["--rounds", "1", "--listen", &listen]);
    assert_eq!(done.status.code(), Some(78), "{}", String::from_utf8_lossy(&done.stderr));
}
