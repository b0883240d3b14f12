//! Where requests reach one API instance of this process, over all its lives, without a socket; a frozen instance takes
//! them and answers when it goes on.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tally_core::ids::{CounterId, CounterName, PostId};
use tally_count_api::limits::Peer;
use tally_count_api::routes::Front;
use tally_service::Standstill;
use tokio::sync::oneshot;

use super::laws::Answer;

/// What a client asks.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// The likes of posts.
    Likes(Vec<PostId>),
    /// One counter.
    One(CounterId),
    /// Every counter of a post.
    All(PostId),
    /// These counters of each of these posts.
    Several(Vec<PostId>, Vec<CounterName>),
}

impl Question {
    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let get = |path: String| Request::get(path).header(HOST, "door").body(Full::default());
        let post = |path: &str, body: &Value| {
            let request = Request::post(path).header(HOST, "door").header("content-type", "application/json");
            request.body(Full::new(Bytes::from(body.to_string())))
        };
        let texts = |posts: &[PostId]| posts.iter().map(|post| post.as_str().to_owned()).collect::<Vec<_>>();
        Ok(match self {
            Self::Likes(posts) if posts.len() == 1 => get(format!("/v1/posts/{}/likes", posts[0]))?,
            Self::Likes(posts) => post("/v1/likes:batchGet", &json!({ "post_ids": texts(posts) }))?,
            Self::One(id) => get(format!("/v1/posts/{}/counters/{}", id.post, id.name))?,
            Self::All(post) => get(format!("/v1/posts/{post}/counters"))?,
            Self::Several(posts, names) => {
                let names: Vec<&str> = names.iter().map(CounterName::as_str).collect();
                post("/v1/counters:batchGet", &json!({ "post_ids": texts(posts), "counters": names }))?
            }
        })
    }

    /// Whether the API may not know yet what it is asked for.
    fn may_be_undefined(&self) -> bool {
        !matches!(self, Self::Likes(_))
    }

    /// The counts in the body of an answer.
    fn answers(&self, mut body: Value) -> anyhow::Result<Vec<Answer>> {
        let counts = match self {
            Self::Likes(posts) if posts.len() == 1 => json!([body]),
            Self::One(_) => json!([body]),
            Self::Likes(_) | Self::Several(..) => body["counts"].take(),
            Self::All(post) => {
                let figures = body["counters"].as_object_mut().into_iter().flatten();
                let named = figures.map(|(name, figures)| {
                    figures["post_id"] = json!(post.as_str());
                    figures["counter"] = json!(name);
                    figures.take()
                });
                named.collect()
            }
        };
        Ok(serde_json::from_value(counts)?)
    }
}

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

    /// What the instance answers; `None` where there is no instance, or none any more when it would have answered, or no
    /// count, or it does not know of a counter yet.
    pub(crate) async fn ask(&self, question: &Question) -> anyhow::Result<Option<Vec<Answer>>> {
        let Some((life, front)) = self.front() else { return Ok(None) };
        let request = question.request()?;
        let peer = Peer::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let exchange = async {
            let Ok(response) = front.answer(request, &peer).await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| anyhow::anyhow!(error.to_string()))?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let (status, body) = self.standstill.hold(exchange).await?;
        let undefined = status == http::StatusCode::NOT_FOUND && question.may_be_undefined();
        if self.behind().life != life || status == http::StatusCode::SERVICE_UNAVAILABLE || undefined {
            return Ok(None);
        }
        ensure!(status == http::StatusCode::OK, "the api answered {status}: {body:?}");
        question.answers(serde_json::from_slice(&body)?).map(Some)
    }

    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
