//! Tests each kind of fault against an echo server.

use std::io::ErrorKind;

use tokio::time::{Instant, timeout};

use crate::attack::proxy::*;

const SOON: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(150);

/// Starts a proxy in front of an echo server.
async fn proxy() -> (Host, Proxy) {
    let tasks = Host::new("proxy-tests");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    tasks.worker(Stage::Support, "echo", move |stop: Stop| async move {
        let mut connections = JoinSet::new();
        while let Ok(Ok((mut stream, _))) = stop.unless_requested(listener.accept()).await {
            connections.spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
        Ok(())
    });
    let proxy = Proxy::start(&tasks, target, Protocol::Any).await.unwrap();
    (tasks, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// The echo of `bytes`.
async fn echo(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    let mut back = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut back)).await.expect("something happens")?;
    Ok(back)
}

#[tokio::test]
async fn without_a_fault_bytes_and_ends_are_forwarded_unchanged() {
    let (_tasks, proxy) = proxy().await;
    let mut stream = connect(&proxy).await;
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let (mut from, mut to) = stream.split();
    let mut back = Vec::new();
    let said = async {
        to.write_all(&bytes).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let (_, heard) = timeout(SOON, async { tokio::join!(said, from.read_to_end(&mut back)) }).await.unwrap();
    heard.unwrap();
    assert!(back == bytes);
    assert_eq!(proxy.effects(), Effects::default());
}

#[tokio::test]
async fn a_reset_ends_existing_and_new_connections_until_it_is_over() {
    let (_tasks, proxy) = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(echo(&mut stream, b"before").await.unwrap(), b"before");
    proxy.set(Mode::Reset);
    let broken = timeout(SOON, stream.read(&mut [0; 8])).await.unwrap();
    assert_eq!(broken.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut second = connect(&proxy).await;
    assert!(echo(&mut second, b"during").await.is_err());
    assert!(proxy.effects().felt(Mode::Reset));
    proxy.calm();
    let mut third = connect(&proxy).await;
    assert_eq!(echo(&mut third, b"after").await.unwrap(), b"after");
}

#[tokio::test]
async fn a_black_hole_answers_nothing_and_forwards_everything_later() {
    let (_tasks, proxy) = proxy().await;
    let mut old = connect(&proxy).await;
    assert_eq!(echo(&mut old, b"before").await.unwrap(), b"before");
    proxy.set(Mode::Blackhole);
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        stream.write_all(b"held").await.unwrap();
        assert!(timeout(PAUSE, stream.read(&mut [0; 8])).await.is_err(), "no answer");
    }
    assert_eq!(proxy.effects(), Effects { swallowed: 8, ..Effects::default() });
    proxy.calm();
    for stream in [&mut old, &mut new] {
        let mut back = [0; 4];
        timeout(SOON, stream.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"held");
    }
}

#[tokio::test]
async fn slow_bytes_all_arrive_late() {
    let (_tasks, proxy) = proxy().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Mode::Slow { delay: Duration::from_millis(10), bytes_per_second: 1_000 });
    let began = Instant::now();
    let bytes = [7; 100];
    assert_eq!(echo(&mut stream, &bytes).await.unwrap(), bytes);
    assert!(began.elapsed() > Duration::from_millis(180), "{:?}", began.elapsed());
    assert_eq!(proxy.effects().slowed, 200, "there and back");
}

#[tokio::test]
async fn a_connection_is_cut_after_exactly_the_given_number_of_bytes() {
    let (_tasks, proxy) = proxy().await;
    proxy.set(Mode::Cut { after: 20 });
    let mut stream = connect(&proxy).await;
    assert_eq!(echo(&mut stream, b"12345678").await.unwrap(), b"12345678");
    assert!(echo(&mut stream, b"12345678").await.is_err(), "four bytes of these are let through");
    assert_eq!(proxy.effects().broken, 1);
}

#[test]
fn a_fault_counts_only_if_it_had_its_own_effect() {
    let slow = Mode::Slow { delay: Duration::ZERO, bytes_per_second: 1 };
    let modes = [Mode::Reset, Mode::Cut { after: 1 }, Mode::Blackhole, slow];
    let felt = |effects: Effects| modes.map(|mode| effects.felt(mode));
    let nothing = Effects::default();
    assert_eq!(felt(nothing), [false; 4]);
    assert_eq!(felt(Effects { broken: 1, ..nothing }), [true, true, false, false]);
    assert_eq!(felt(Effects { swallowed: 1, ..nothing }), [false, false, true, false]);
    assert_eq!(felt(Effects { slowed: 1, ..nothing }), [false, false, false, true]);
    let later = Effects { broken: 3, swallowed: 2, slowed: 1 };
    assert_eq!(later.since(Effects { broken: 1, ..nothing }), Effects { broken: 2, swallowed: 2, slowed: 1 });
}

#[test]
fn a_slow_connection_never_stops_completely() {
    assert_eq!(room(1_000, Duration::from_millis(50)), 50);
    assert_eq!(room(1, Duration::from_millis(50)), 1);
}
