//! Where requests reach one API instance of this process, over all its lives, without a socket; a frozen instance takes
//! them and answers when it goes on.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Full};
use tally_count_api::limits::Peer;
use tally_count_api::routes::Front;
use tally_service::Standstill;
use tokio::sync::oneshot;

use super::laws::Answer;

/// The door of one instance; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Door {
    behind: Arc<Mutex<Behind>>,
    /// Holds requests back. The instance's own tasks go on after them, so that a request can be answered before the
    /// instance has looked at anything again.
    pub(crate) standstill: Standstill,
}

/// Who is behind a door.
#[derive(Default)]
struct Behind {
    life: u64,
    starting: Option<oneshot::Receiver<Front>>,
    front: Option<Front>,
}

impl Door {
    /// The instance starts anew; `starting` yields its routes when it is ready.
    pub(crate) fn open(&self, starting: oneshot::Receiver<Front>) {
        let mut behind = self.behind();
        *behind = Behind { life: behind.life + 1, starting: Some(starting), front: None };
    }

    /// The instance is gone, and its requests with it.
    pub(crate) fn close(&self) {
        let mut behind = self.behind();
        *behind = Behind { life: behind.life + 1, starting: None, front: None };
        self.standstill.end();
    }

    /// The routes, once they are there, and of which life.
    fn front(&self) -> Option<(u64, Front)> {
        let mut behind = self.behind();
        if let Some(front) = behind.starting.as_mut().and_then(|starting| starting.try_recv().ok()) {
            (behind.starting, behind.front) = (None, Some(front));
        }
        Some((behind.life, behind.front.clone()?))
    }

    /// What the instance answers to a question for `posts`; `None` where there is no instance, or none any more when it
    /// would have answered, or no count.
    pub(crate) async fn ask(&self, posts: &[&str]) -> anyhow::Result<Option<Vec<Answer>>> {
        let Some((life, front)) = self.front() else { return Ok(None) };
        let request = match posts {
            [post] => Request::get(format!("/v1/posts/{post}/likes")).header(HOST, "door").body(Full::default())?,
            posts => {
                let body = serde_json::json!({ "post_ids": posts }).to_string();
                let request = Request::post("/v1/likes:batchGet").header(HOST, "door");
                request.header("content-type", "application/json").body(Full::new(Bytes::from(body)))?
            }
        };
        let peer = Peer::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let exchange = async {
            let Ok(response) = front.answer(request, &peer).await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| anyhow::anyhow!(error.to_string()))?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let (status, body) = self.standstill.hold(exchange).await?;
        if self.behind().life != life || status == http::StatusCode::SERVICE_UNAVAILABLE {
            return Ok(None);
        }
        ensure!(status == http::StatusCode::OK, "the api answered {status}: {body:?}");
        let counts: serde_json::Value = serde_json::from_slice(&body)?;
        let counts = if posts.len() == 1 { serde_json::json!([counts]) } else { counts["counts"].clone() };
        Ok(Some(serde_json::from_value(counts)?))
    }

    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
