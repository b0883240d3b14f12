//! Tests the proxy that imitates a bad network: each kind of fault, against an echo server.

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
    let proxy = Proxy::start(&tasks, Dependency::Redis, target).await.unwrap();
    (tasks, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Whether the server echoes some bytes.
async fn echoes(stream: &mut TcpStream) -> bool {
    stream.write_all(b"12345678").await.unwrap();
    let mut back = [0; 8];
    timeout(SOON, stream.read_exact(&mut back)).await.unwrap().is_ok_and(|_| &back == b"12345678")
}

#[tokio::test]
async fn each_fault_does_what_it_says_and_ends_with_it() {
    let (_tasks, proxy) = proxy().await;
    let (mut old, mut held) = (connect(&proxy).await, connect(&proxy).await);
    assert!(echoes(&mut old).await && echoes(&mut held).await && !proxy.is_felt());
    let (mut whole, bytes) = (connect(&proxy).await, vec![7; 400_000]);
    let ((mut from, mut to), mut back) = (whole.split(), Vec::new());
    let said = async {
        to.write_all(&bytes).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let (_, heard) = timeout(SOON, async { tokio::join!(said, from.read_to_end(&mut back)) }).await.unwrap();
    assert!(heard.is_ok() && back == bytes, "the end of one direction is forwarded, and then that of the other");

    proxy.set(Mode::Blackhole);
    let broken = connect(&proxy).await;
    broken.set_zero_linger().unwrap();
    drop(broken);
    assert!(timeout(PAUSE, old.read(&mut [0; 8])).await.is_err() && !proxy.is_felt(), "a broken connection is no hole");
    let mut new = connect(&proxy).await;
    for stream in [&mut held, &mut new] {
        stream.write_all(b"held").await.unwrap();
        assert!(timeout(PAUSE, stream.read(&mut [0; 4])).await.is_err() && proxy.is_felt(), "no answer");
    }
    proxy.calm();
    for stream in [&mut held, &mut new] {
        let mut back = [0; 4];
        timeout(SOON, stream.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"held");
    }

    proxy.set(Mode::Slow { delay: Duration::from_millis(10), bytes_per_second: 100 });
    let began = Instant::now();
    assert!(!proxy.is_felt() && echoes(&mut old).await && proxy.is_felt());
    assert!(began.elapsed() > Duration::from_millis(170), "three pieces one after the other: {:?}", began.elapsed());

    proxy.set(Mode::Cut { after: 20 });
    let mut cut = connect(&proxy).await;
    assert!(echoes(&mut cut).await && !proxy.is_felt());
    assert!(!echoes(&mut cut).await && proxy.is_felt(), "four bytes of these are let through");
    proxy.set(Mode::Cut { after: 30 });
    assert!(proxy.is_felt(), "a fault of the same kind goes on with its effects");

    proxy.set(Mode::Reset);
    assert!(timeout(SOON, old.read(&mut [0; 8])).await.unwrap().is_err() && proxy.is_felt());
    assert!(connect(&proxy).await.read(&mut [0; 8]).await.is_err(), "a new connection is reset, too");
    proxy.calm();
    assert!(echoes(&mut connect(&proxy).await).await);
}
