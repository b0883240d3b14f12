//! Tests of the HTTP server: its limits on headers, idle connections and their number, and how it stops. They use real
//! sockets and therefore real time. Their time-outs are short; the deadline matters only on failure.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;
use crate::{Exit, Host, Stage};

const DEADLINE: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

async fn serve(limits: Limits, router: Router) -> (Host, SocketAddr) {
    let listener = bind("listen", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let host = Host::new("test");
    host.spawn(Stage::Intake, "http", Server::new(listener, router, limits));
    (host, address)
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Everything that the server sends until it closes the connection.
async fn answer(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset closes the connection, too.
    let _ = timeout(DEADLINE, stream.read_to_end(&mut text)).await.expect("the server hangs up");
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn connections_with_slow_headers_or_no_requests_are_closed() {
    let limits = Limits { header_time: Duration::from_millis(50), ..Limits::of_admin() };
    let (host, address) = serve(limits, hello()).await;
    for beginning in [&b""[..], b"GET / HTTP/1.1\r\nhost:", b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"] {
        let text = answer(send(address, beginning).await).await;
        assert_eq!(text.contains("hello"), beginning.ends_with(b"\r\n\r\n"), "{text}");
    }
    assert_eq!(host.shut_down(DEADLINE).await.exit(), Exit::CLEAN);
}

#[tokio::test]
async fn headers_beyond_the_limit_are_refused_and_the_server_goes_on() {
    let (host, address) = serve(Limits::of_admin(), hello()).await;
    let mut huge = b"GET / HTTP/1.1\r\nhost: ".to_vec();
    huge.resize(64 * 1024, b'a');
    let text = answer(send(address, &huge).await).await;
    assert!(!text.contains("200 OK"), "{text}");
    assert!(answer(send(address, REQUEST).await).await.ends_with("hello"));
    assert_eq!(host.shut_down(DEADLINE).await.exit(), Exit::CLEAN);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_another_ends() {
    let (host, address) = serve(Limits { connections: 1, ..Limits::of_admin() }, hello()).await;
    let mut holding = send(address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let mut first = [0; 8];
    holding.read_exact(&mut first).await.unwrap();
    let mut waiting = send(address, REQUEST).await;
    assert!(timeout(Duration::from_millis(100), waiting.read_u8()).await.is_err(), "served past the cap");
    drop(holding);
    assert!(answer(waiting).await.ends_with("hello"));
    assert_eq!(host.shut_down(DEADLINE).await.exit(), Exit::CLEAN);
}

#[tokio::test]
async fn a_stopping_server_ends_idle_connections_at_once() {
    let (host, address) = serve(Limits { header_time: Duration::from_hours(1), ..Limits::of_admin() }, hello()).await;
    let (silent, mut idle) = (send(address, b"").await, send(address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await);
    while idle.read_u8().await.unwrap() != b'o' {}
    let (shutdown, ..) = tokio::join!(host.shut_down(Duration::from_hours(1)), answer(idle), answer(silent));
    assert_eq!(shutdown.exit(), Exit::CLEAN);
}

#[test]
fn the_limit_is_raised_to_the_maximum() {
    let limit = open_files();
    assert_eq!(limit, getrlimit(Resource::Nofile).maximum);
    assert_eq!(open_files(), limit);
}

#[tokio::test]
async fn a_reserved_address_refuses_connections_until_it_listens_and_a_taken_one_is_named() {
    let reserved = Reserved::new("listen", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = reserved.address();
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let _listener = reserved.listen().unwrap();
    assert!(TcpStream::connect(address).await.is_ok());
    let taken = Reserved::new("listen", address).unwrap_err();
    assert!(taken.to_string().contains(&format!("{address}, set by --listen (TALLY_LISTEN)")), "{taken}");
    assert_eq!(Exit::after(&taken), Exit::CONFIG);
}

#[tokio::test]
async fn nothing_is_kept_of_those_that_ended_however_they_did() {
    let mut connections = Connections::default();
    for _ in 0..10 {
        connections.open(|_| async {});
    }
    connections.open(|_| async { panic!("a test's own") });
    tokio::task::yield_now().await;
    connections.open(|ending| async move { _ = ending.await });
    assert_eq!((connections.tasks.len(), connections.channels.len()), (1, 1));
}
