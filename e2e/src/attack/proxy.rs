//! A TCP proxy for one dependency. It forwards everything or simulates a network fault, and knows whether that had an effect.

mod kafka;

use std::future::Future;
use std::mem::discriminant;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tally_service::{Host, Stage, Stop};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::attack::engines::Dependency;
use crate::attack::proxy::kafka::{Frames, Ports};

/// What a proxy does with the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forwards everything.
    Pass,
    /// Resets every existing connection and each new one.
    Reset,
    /// Accepts everything and answers nothing; connections stay open.
    Blackhole,
    /// Forwards with a delay and a limited rate in each direction.
    Slow {
        /// The delay of each piece.
        delay: Duration,
        /// The rate of one direction of one connection.
        bytes_per_second: u64,
    },
    /// Resets a connection after a number of bytes in both directions together.
    Cut {
        /// The number of bytes.
        after: u64,
    },
}

/// What a proxy does, and whether it has already done that to a connection. A proxy that forwards everything never has.
#[derive(Clone, Copy, Debug)]
struct Weather {
    mode: Mode,
    is_felt: bool,
}

/// The size of one read in bytes.
const PIECE: usize = 16 << 10;

/// How often slow bytes are sent, and how often that is in a second.
const TRICKLE: Duration = Duration::from_millis(50);
const TRICKLES: u64 = 20;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    advertised: Option<Ports>,
    weather: watch::Sender<Weather>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards to `target`.
    pub(crate) async fn start(tasks: &Host, of: Dependency, target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on a port for a proxy")?;
        let address = listener.local_addr()?;
        let advertised = (of == Dependency::Kafka).then(|| [target.port(), address.port()]);
        let weather = watch::Sender::new(Weather { mode: Mode::Pass, is_felt: false });
        let shared = Arc::new(Shared { target: Mutex::new(target), advertised, weather });
        let serving = Arc::clone(&shared);
        tasks.worker(Stage::Support, "proxy", move |stop: Stop| async move {
            let mut connections = JoinSet::new();
            while let Ok(accepted) = stop.unless_requested(listener.accept()).await {
                while connections.try_join_next().is_some() {}
                // The client gave up before its connection was accepted.
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(Arc::clone(&serving).serve(client));
            }
            Ok(())
        });
        Ok(Self { address, shared })
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the mode from now on. Another fault of the same kind goes on with the first one's effects.
    pub(crate) fn set(&self, mode: Mode) {
        self.shared.weather.send_modify(|weather| {
            let is_felt = weather.is_felt && discriminant(&weather.mode) == discriminant(&mode);
            *weather = Weather { mode, is_felt };
        });
    }

    /// Forwards new connections to another server.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Forwards everything from now on.
    pub(crate) fn calm(&self) {
        self.set(Mode::Pass);
    }

    /// Whether the fault has had an effect since it was set.
    pub(crate) fn is_felt(&self) -> bool {
        self.shared.weather.borrow().is_felt
    }
}

/// A connection that did not end normally.
#[derive(Debug)]
struct Broken;

impl Shared {
    async fn serve(self: Arc<Self>, mut client: TcpStream) {
        let target = *self.target.lock();
        let Ok(mut server) = TcpStream::connect(target).await else { return };
        let passed = AtomicU64::new(0);
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = self.pump(from_client, to_server, None, &passed);
        let down = self.pump(from_server, to_client, self.advertised, &passed);
        if tokio::try_join!(up, down).is_err() {
            self.feel(|mode| matches!(mode, Mode::Reset | Mode::Cut { .. }));
            // Closing with zero linger resets the connection.
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
    }

    /// The current fault has an effect, if it is of the kind that has such effects.
    fn feel(&self, is_its: impl Fn(Mode) -> bool) {
        self.weather.send_if_modified(|weather| {
            weather.is_felt |= is_its(weather.mode);
            false
        });
    }

    /// Forwards one direction until it ends.
    async fn pump(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        advertised: Option<Ports>,
        passed: &AtomicU64,
    ) -> Result<(), Broken> {
        let mut weather = self.weather.subscribe();
        let mut frames = advertised.map(Frames::new);
        let mut piece = vec![0; PIECE];
        loop {
            let read = unless_reset(&mut weather, from.read(&mut piece)).await?.map_err(|_| Broken)?;
            if read == 0 {
                // The other direction may still have data.
                let _ = to.shutdown().await;
                return Ok(());
            }
            match &mut frames {
                Some(frames) => self.deliver(&frames.take(&piece[..read]), &mut to, &mut weather, passed).await?,
                None => self.deliver(&piece[..read], &mut to, &mut weather, passed).await?,
            }
        }
    }

    /// Forwards `bytes` according to the mode. Bytes held in a black hole are forwarded when the hole ends, as after a network
    /// partition: the request of a client that has given up is carried out nevertheless.
    async fn deliver(
        &self,
        mut bytes: &[u8],
        to: &mut (impl AsyncWrite + Unpin),
        weather: &mut watch::Receiver<Weather>,
        passed: &AtomicU64,
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let now = weather.borrow_and_update().mode;
            let sent = match now {
                Mode::Pass => bytes.len(),
                Mode::Reset => return Err(Broken),
                Mode::Blackhole => {
                    self.feel(|mode| mode == now);
                    weather.wait_for(|weather| weather.mode != Mode::Blackhole).await.map_err(|_| Broken)?;
                    0
                }
                Mode::Slow { delay, bytes_per_second } => {
                    sleep(delay).await;
                    self.feel(|mode| mode == now);
                    sleep(TRICKLE).await;
                    let room = usize::try_from(bytes_per_second / TRICKLES).unwrap_or(usize::MAX);
                    bytes.len().min(room.max(1))
                }
                Mode::Cut { after } => {
                    let left = after.saturating_sub(passed.load(Ordering::Relaxed));
                    let sent = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    passed.fetch_add(sent as u64, Ordering::Relaxed);
                    sent
                }
            };
            let (head, rest) = bytes.split_at(sent);
            unless_reset(weather, to.write_all(head)).await?.map_err(|_| Broken)?;
            bytes = rest;
            if matches!(now, Mode::Cut { .. }) && !bytes.is_empty() {
                return Err(Broken);
            }
        }
        Ok(())
    }
}

/// Returns the result of `work`, unless connections are reset meanwhile.
async fn unless_reset<T>(weather: &mut watch::Receiver<Weather>, work: impl Future<Output = T>) -> Result<T, Broken> {
    tokio::select! {
        biased;
        _ = weather.wait_for(|weather| weather.mode == Mode::Reset) => Err(Broken),
        done = work => Ok(done),
    }
}

#[cfg(test)]
mod tests;
