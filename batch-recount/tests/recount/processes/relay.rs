//! Carries connections to the emulator and counts what recounts send over them, so that a test can end one at a point of
//! its work and not of time.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Ended when dropped.
pub(super) struct Relay {
    address: SocketAddr,
    carried: watch::Receiver<u64>,
    _connections: JoinSet<()>,
}

impl Relay {
    /// Listens on the loopback.
    pub(super) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, carried) = watch::channel(0);
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, server, count));
        Self { address, carried, _connections: connections }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The pieces that clients have sent so far: about one for each request.
    pub(super) fn carried(&self) -> u64 {
        *self.carried.borrow()
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, count: watch::Sender<u64>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        connections.spawn(carry(client, server, count.clone()));
    }
}

/// Carries one connection, until either side ends it.
async fn carry(mut client: TcpStream, server: SocketAddr, count: watch::Sender<u64>) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        let mut piece = vec![0; 64 << 10];
        loop {
            match from_client.read(&mut piece).await? {
                0 => return to_server.shutdown().await,
                read => {
                    to_server.write_all(&piece[..read]).await?;
                    count.send_modify(|carried| *carried += 1);
                }
            }
        }
    };
    tokio::try_join!(requests, tokio::io::copy(&mut from_server, &mut to_client)).map(|_| ())
}
