//! The exit codes of `tally probe`, over listeners of this test's own.

#![cfg(test)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

fn tally(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tally")).args(args).output().expect("the program starts")
}

/// A server for one connection; gives what it was asked.
fn serve(answer: impl FnOnce(TcpStream) + Send + 'static) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/livez", listener.local_addr().expect("it is bound"));
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client connects");
        let (mut asked, mut part) = (String::new(), [0; 1024]);
        while !asked.ends_with("\r\n\r\n") {
            let read = stream.read(&mut part).expect("a client asks");
            asked.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        answer(stream);
        asked
    });
    (url, served)
}

fn says(text: &'static str) -> impl FnOnce(TcpStream) + Send {
    move |mut stream| stream.write_all(text.as_bytes()).expect("the client listens")
}

#[test]
fn a_healthy_service_is_0_and_silent() {
    let (url, asked) = serve(says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let done = tally(&["probe", &url]);
    assert_eq!((done.status.code(), done.stdout.len(), done.stderr.len()), (Some(0), 0, 0));
    assert!(asked.join().expect("it answered").starts_with("GET /livez HTTP/1.0\r\nHost: 127.0.0.1:"));
}

#[test]
fn another_answer_is_1_and_is_repeated() {
    let (url, asked) = serve(says("HTTP/1.1 503 Service Unavailable\r\n\r\nthe fence is not read\n"));
    let done = tally(&["probe", &url]);
    asked.join().expect("it answered");
    let said = format!("tally: {url} answers 503: the fence is not read\n");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(1), said.as_str()));
}

#[test]
fn no_connection_no_answer_and_no_http_are_69() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        format!("http://{}/livez", listener.local_addr().expect("it is bound"))
    };
    assert_eq!(tally(&["probe", &closed]).status.code(), Some(69));
    let (url, asked) = serve(says("SSH-2.0-OpenSSH\r\n"));
    assert_eq!(tally(&["probe", &url]).status.code(), Some(69));
    asked.join().expect("it answered");
    let (url, asked) = serve(|mut stream| {
        // Says nothing until the client has gone.
        let _ = stream.read(&mut [0; 1]);
    });
    assert_eq!(tally(&["probe", &url, "--within", "1"]).status.code(), Some(69));
    asked.join().expect("it waited");
}

#[test]
fn a_wrong_command_line_is_2() {
    for wrong in
        [&["probe"][..], &["probe", "https://127.0.0.1/"], &["probe", "http://h", "--within", "0"], &["prob"], &[]]
    {
        assert_eq!(tally(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
