//! Serves a router over HTTP/1.1 within limits, and drains it on shutdown.

pub mod same_site;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use clap::Args;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{Id, JoinSet};
use tokio_io_timeout::TimeoutWriter;

use crate::config::setting;
use crate::{Stop, Task, Unfit, defaults, positive_duration, within};

/// How many connections wait to be accepted: as many as tokio's own listener has.
const BACKLOG: u32 = 1024;

/// How long to wait after `accept` fails, as it does when the process has no file descriptor left.
const REST: Duration = Duration::from_millis(100);

/// More than any process can have open.
pub const MOST_CONNECTIONS: usize = 1_000_000;

/// The most bytes of a request's line and headers. hyper reads at least 8 KiB at once.
pub const HEADER_BYTES: usize = 16 * 1024;

/// Limits on what a client may use of a server.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None)]
pub struct Limits {
    /// Connections at once; more wait
    #[arg(long, env = "TALLY_CONNECTIONS", default_value_t = 10_000, value_parser = within(1..=MOST_CONNECTIONS), value_name = "COUNT", help_heading = "HTTP")]
    pub connections: usize,

    /// How long a request's headers may take, and how long a connection may be idle
    #[arg(long, env = "TALLY_HEADER_TIME", default_value = "10s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "HTTP")]
    pub header_time: Duration,

    /// How long an answer may wait for its client to read any of it
    #[arg(long, env = "TALLY_UNREAD_TIME", default_value = "30s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "HTTP")]
    pub unread_time: Duration,
}

impl Limits {
    /// The limits of an admin listener.
    pub fn of_admin() -> Self {
        Self { connections: 256, ..defaults() }
    }
}

/// Raises the soft limit of open files, which connections count as, to the hard limit where that is allowed, and
/// returns the limit in force; `None` means unlimited.
///
/// The soft limit exists for programs that use `select`, and none of Tally's does.
pub fn open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current?;
    let raised = Rlimit { current: maximum, maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { Some(current) }
}

/// Listens on `address`, which the setting `flag` gave.
///
/// # Errors
/// [`Unfit`], with the name of the setting, if the address is not available.
pub async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    Reserved::new(flag, address)?.listen()
}

/// An address that is bound, and on which connections are refused until [`Reserved::listen`]. A client of a process
/// that still waits for something knows at once. Another process may bind the address, too; then the second one to
/// listen fails.
#[derive(Debug)]
pub struct Reserved {
    socket: TcpSocket,
    flag: String,
    address: SocketAddr,
}

impl Reserved {
    /// Takes `address`, which the setting `flag` gave.
    ///
    /// # Errors
    /// [`Unfit`], with the name of the setting, if the address is not available.
    pub fn new(flag: &str, address: SocketAddr) -> anyhow::Result<Self> {
        let bound = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // As a listener of tokio's: a port that was used a moment ago is available.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, flag: flag.to_owned(), address })
        };
        Ok(bound().map_err(|error| unfit(flag, address, &error))?)
    }

    /// Returns the address, with the port that the system chose if none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections.
    ///
    /// # Errors
    /// [`Unfit`], with the name of the setting, if another process listens there by now.
    pub fn listen(self) -> anyhow::Result<TcpListener> {
        let Self { socket, flag, address } = self;
        Ok(socket.listen(BACKLOG).map_err(|error| unfit(&flag, address, &error))?)
    }
}

fn unfit(flag: &str, address: SocketAddr, error: &io::Error) -> Unfit {
    Unfit(format!("cannot listen on {address}, set by {}: {error}", setting(flag)))
}

/// Returns whether a request names exactly one host, as HTTP/1.1 requires. Otherwise proxies and servers may disagree
/// about the site that it is for.
pub fn names_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), more) => more.is_none(),
        (None, _) => version < Version::HTTP_11,
    }
}

async fn only_of_one_host(request: Request, next: Next) -> Response {
    if names_one_host(request.version(), request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::BAD_REQUEST, [(header::CONNECTION, "close")], "a request must name exactly one host\n")
            .into_response()
    }
}

/// Returns the same stream, whose writes fail once the client has accepted no bytes for `unread_time`: so the memory that
/// is kept for it is freed.
pub fn hanging_up<S: AsyncWrite>(stream: S, unread_time: Duration) -> Pin<Box<TimeoutWriter<S>>> {
    let mut writer = TimeoutWriter::new(stream);
    writer.set_timeout(Some(unread_time));
    Box::pin(writer)
}

/// Ready once the connection should end: its sender is dropped.
///
/// Each connection has its own channel; a shared one takes a lock whenever any connection uses it.
pub type Ending = oneshot::Receiver<Infallible>;

/// The connections. Dropping this drops those that are still open.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    channels: HashMap<Id, oneshot::Sender<Infallible>>,
}

impl Connections {
    /// Starts a connection, the future that `serve` returns.
    fn open<F>(&mut self, serve: impl FnOnce(Ending) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.forget_ended();
        let (channel, ending) = oneshot::channel();
        let task = self.tasks.spawn(serve(ending));
        self.channels.insert(task.id(), channel);
    }

    /// Tells all connections to end, and waits until they have.
    async fn drain(&mut self) {
        self.channels.clear();
        while self.tasks.join_next().await.is_some() {}
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            // A panic has been logged by the panic hook.
            let id = ended.map_or_else(|panicked| panicked.id(), |(id, ())| id);
            self.channels.remove(&id);
        }
    }
}

/// A listener with a limit of connections at once: further ones wait in its queue.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl Acceptor {
    pub fn new(listener: TcpListener, connections: usize) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(connections)) }
    }

    /// Serves connections, each by a task of its own, until asked to stop. Then tells them to end, and waits for those
    /// that do in time.
    pub async fn run<F>(self, stop: &Stop, serve: impl Fn(TcpStream, SocketAddr, Ending) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = Connections::default();
        while let Some((stream, peer, permit)) = self.next(stop).await {
            connections.open(|ending| {
                let served = serve(stream, peer, ending);
                async move {
                    served.await;
                    drop(permit);
                }
            });
        }
        drop(self);
        if stop.until_last_call(connections.drain()).await.is_err() {
            tracing::warn!(connections = connections.tasks.len(), "dropping connections that did not finish");
        }
    }

    /// Returns the next connection, and a permit to keep while it is open. `None` if asked to stop.
    async fn next(&self, stop: &Stop) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        loop {
            match stop.unless_requested(self.accept()).await.ok()? {
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    stop.unless_requested(tokio::time::sleep(REST)).await.ok()?;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let (stream, peer) = self.listener.accept().await?;
        // Answers are sent at once, and events do not wait for the next one. A client that has left refuses it.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer, permit))
    }
}

/// Serves a connection of HTTP/1 until the client closes it, or until `ending` fires and the request under way is
/// answered.
///
/// # Errors
/// Those of hyper: the client breaks the protocol, or goes away.
pub async fn to_its_end<I, S>(connection: http1::Connection<I, S>, mut ending: Ending) -> hyper::Result<()>
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming>,
    S::Error: Into<BoxError>,
    S::ResBody: Body + 'static,
    <S::ResBody as Body>::Error: Into<BoxError>,
{
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        _ = &mut ending => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// A task that serves a router on a listener. When asked to stop, it accepts no more connections and lets the answers
/// under way finish.
#[derive(Debug)]
pub struct Server {
    acceptor: Acceptor,
    router: Router,
    limits: Limits,
}

impl Server {
    pub fn new(listener: TcpListener, router: Router, limits: Limits) -> Self {
        let acceptor = Acceptor::new(listener, limits.connections);
        Self { acceptor, router: router.layer(from_fn(only_of_one_host)), limits }
    }
}

impl Task for Server {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.limits.header_time).max_header_size(HEADER_BYTES);
        let serve = |stream, _, ending| {
            let stream = TokioIo::new(hanging_up(stream, self.limits.unread_time));
            let connection = http.serve_connection(stream, TowerToHyperService::new(self.router.clone()));
            // A client may break the protocol or go away at any time.
            async move { _ = to_its_end(connection, ending).await }
        };
        self.acceptor.run(&stop, serve).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
