//! Serves the emulator over HTTP/1.1: connections, the limit of bodies, and control routes.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::emulator::{Emulator, Lost};
use crate::limits::{MIB, REQUEST_BYTES};
use crate::{control, envelope};

/// A body over the limit is read and dropped up to this size, so that its sender gets the error.
const DRAINED_BYTES: usize = 64 * MIB;

/// How long open requests may take after the request to stop.
const GRACE: Duration = Duration::from_secs(1);

impl Emulator {
    /// Serves HTTP/1.1 on a listener until `stop` is ready.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "cannot disable Nagle's algorithm");
                        }
                        let emulator = self.clone();
                        let service = service_fn(move |request| {
                            let emulator = emulator.clone();
                            async move { emulator.respond(request).await.map(|response| response.map(Full::new)) }
                        });
                        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                        connections.spawn(graceful.watch(connection));
                    }
                    // There are too few descriptors, or the connection was reset; the next one may succeed.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
            }
        }
        drop(listener);
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!(open = connections.len(), "dropping connections that did not finish");
        }
        connections.shutdown().await;
        Ok(())
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Bytes>, Lost> {
        let (head, body) = request.into_parts();
        let Some(body) = read(body).await? else { return Ok(self.answer(Err(envelope::too_large()))) };
        if let Some(refusal) = control::refusal(&head) {
            return Ok(refusal);
        }
        let path = head.uri.path();
        if let Some(route) = path.strip_prefix("/_control/").filter(|_| self.state().engine.config.control) {
            return Ok(control::answer(self, &head, route, &body));
        }
        if head.method == Method::GET && path == "/" {
            return Ok(Response::new(Bytes::from_static(b"healthy: tally-emulator\n")));
        }
        let request = Request::from_parts(head, body);
        match self.admit(&request) {
            Ok(denied) => self.handle_without(request, denied).await,
            Err(error) => Ok(self.answer(Err(error))),
        }
    }
}

/// Reads the whole body; `None` if it is over the limit.
async fn read(mut body: Incoming) -> Result<Option<Bytes>, Lost> {
    let mut whole = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Lost::Closed)?.into_data() else { continue };
        total += data.len();
        if total > DRAINED_BYTES {
            break;
        }
        if total > REQUEST_BYTES {
            whole = Vec::new();
        } else {
            whole.extend_from_slice(&data);
        }
    }
    Ok((total <= REQUEST_BYTES).then(|| whole.into()))
}
