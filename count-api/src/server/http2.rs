//! Serves connections of HTTP/2 without TLS, within limits, until they end or are idle for too long.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::BoxError;
use axum::http::header::{CONNECTION, HOST, HeaderValue};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Version};
use parking_lot::Mutex;
use tally_service::http::{Ending, HEADER_BYTES};
use tokio::task::JoinSet;

use super::Exchanges;
use crate::limits::Peer;
use crate::routes::{Answer, Front};

/// Concurrent requests on one connection.
const STREAMS: u32 = 100;

/// How many bytes a client may send ahead, for one request and for the whole connection.
const STREAM_BYTES: u32 = 64 * 1024;
const CONNECTION_BYTES: u32 = 256 * 1024;

/// How many bytes of one answer are buffered if the client does not read.
const UNTAKEN_BYTES: usize = 64 * 1024;

/// How many requests a client may cancel before they are read, and how many malformed ones it may send, before the
/// connection is closed.
const TAKEN_BACK: usize = 20;
const REFUSED: usize = 64;

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Normally, or without anything to log.
    Well,
    /// No request came in time.
    Idle,
    Broken(hyper::Error),
}

/// Serves a connection to its end. A connection without a request for `header_time` is asked to end, and closed after the
/// same time again.
pub(super) async fn serve<S>(
    stream: S,
    front: Front,
    peer: Peer,
    heard: Arc<Exchanges>,
    header_time: Duration,
    mut ending: Ending,
) -> Ended
where
    S: Read + Write + Unpin + Send + 'static,
{
    // Each open request holds a clone, from its headers to the end of its answer.
    let open = Arc::new(());
    let (opening, hearing) = (Arc::downgrade(&open), Arc::clone(&heard));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (heard, held) = (Arc::clone(&hearing), opening.upgrade());
        heard.asked.fetch_add(1, Ordering::Relaxed);
        name_host(&mut request);
        front.answer(request, &peer).map(move |answer| {
            heard.answered.fetch_add(1, Ordering::Relaxed);
            answer.map(|mut answer| {
                answer.headers_mut().remove(CONNECTION);
                answer.map(|body| holding(body, held))
            })
        })
    });
    let mut connection = pin!(builder().serve_connection(stream, service));
    let (mut told, mut before, mut quiet) = (false, 0, 0);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended.map_or_else(Ended::Broken, |()| Ended::Well),
            _ = &mut ending, if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(header_time) => {
                let asked = heard.asked.load(Ordering::Relaxed);
                let is_quiet = asked == before && Arc::strong_count(&open) == 1;
                (before, quiet) = (asked, if is_quiet { quiet + 1 } else { 0 });
                match quiet {
                    0 => {}
                    1 => connection.as_mut().graceful_shutdown(),
                    _ => return if asked == 0 { Ended::Idle } else { Ended::Well },
                }
            }
        }
    }
}

fn builder() -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(Streams::default());
    http.max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADER_BYTES).expect("16 KiB fit into 32 bits"))
        .initial_stream_window_size(STREAM_BYTES)
        .initial_connection_window_size(CONNECTION_BYTES)
        .max_send_buf_size(UNTAKEN_BYTES)
        .max_pending_accept_reset_streams(TAKEN_BACK)
        .max_local_error_reset_streams(REFUSED);
    http
}

/// Copies the host from `:authority`, where HTTP/2 has it, to the header `Host`, which all later code reads. If that
/// header names another host, there are then two.
fn name_host(request: &mut Request<Incoming>) {
    debug_assert_eq!(request.version(), Version::HTTP_2);
    let authority = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let Some(authority) = authority else { return };
    let headers = request.headers_mut();
    let same = headers.get(HOST).is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()));
    if !same {
        headers.append(HOST, authority);
    }
}

/// The tasks of one connection's requests. They end with it.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut streams = self.0.lock();
        // A panic has been logged by the panic hook.
        while streams.try_join_next().is_some() {}
        streams.spawn(stream);
    }
}

/// Returns the same body. Its request counts as open until it is dropped.
fn holding(body: Answer, held: Option<Arc<()>>) -> impl Body<Data = Bytes, Error: Into<BoxError>> + Send {
    body.map_err(move |error| {
        let _ = &held;
        error
    })
}
