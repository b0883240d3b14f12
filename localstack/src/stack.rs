//! What the page can do to the stack: each the real thing, through the same doors that an operator has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use async_trait::async_trait;
use serde_json::json;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::{Cache, Counts, Recounts};
use tally_core::served::Served;
use tally_emulator::Emulator;
use tally_service::Clock;

use crate::cache::Switchable;
use crate::client::Client;
use crate::control::Control;
use crate::observe::Board;
use crate::page::{Action, Refusal, Snapshot, Stack};
use crate::services::Services;

/// Headers of a request to DynamoDB. An engine of this machine takes any signature.
const HEADERS: &str = "content-type: application/x-amz-json-1.0\r\n\
    x-amz-target: DynamoDB_20120810.UpdateItem\r\n\
    x-amz-date: 20240101T000000Z\r\n\
    authorization: AWS4-HMAC-SHA256 Credential=local/20240101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0\r\n";

/// The stack behind the page.
pub(crate) struct LocalStack {
    pub(crate) board: Board,
    /// The load's switch, if there is a load.
    pub(crate) control: Option<Control>,
    pub(crate) services: Services,
    pub(crate) cache: Switchable,
    pub(crate) emulator: Option<Emulator>,
    /// Where DynamoDB listens.
    pub(crate) store: SocketAddr,
    /// The names of the tables of rows and of counts.
    pub(crate) likes: String,
    pub(crate) counters: String,
    pub(crate) counts: Arc<dyn Counts>,
    pub(crate) recounts: Arc<dyn Recounts>,
    pub(crate) clock: Clock,
    /// Likes put into counters by hand, signs ignored.
    pub(crate) injected: Arc<AtomicU64>,
}

impl LocalStack {
    fn kill(&self, name: &str) -> anyhow::Result<String> {
        let Some(part) = self.services.all().into_iter().find(|part| part.name() == name) else {
            bail!(Refusal(format!("there is no service `{name}`")));
        };
        part.kill();
        Ok(format!("{name} was killed as in a crash: it starts again in a second, from its checkpoints"))
    }

    fn switch_cache(&self, on: bool) -> anyhow::Result<String> {
        if !self.cache.is_embedded() {
            bail!(Refusal("the cache is a real Redis: stop and start it where it runs".to_owned()));
        }
        self.cache.switch(on);
        Ok(if on { "the cache is back, empty" } else { "the cache is gone: counts are read from the table" }.to_owned())
    }

    /// An update as a careless operator would make it: one shard and the total, and the version with them.
    async fn inject(&self, post: &str, by: i64) -> anyhow::Result<String> {
        let post = PostId::new(post).map_err(|error| Refusal(format!("a post: {error}")))?;
        let id = CounterId::likes(post.clone());
        if by == 0 || by.unsigned_abs() > 1_000_000 {
            bail!(Refusal("drift is at most a million likes either way, and not none".to_owned()));
        }
        if self.counts.counter(&id).await?.is_none() {
            bail!(Refusal(format!("nobody has liked {post}, so it has no counter")));
        }
        let update = json!({
            "TableName": self.counters,
            "Key": {"post_id": {"S": post.as_str()}},
            "UpdateExpression": "ADD #likes :by, #shard :by, #version :one",
            "ConditionExpression": "attribute_exists(#version)",
            "ExpressionAttributeNames": {"#likes": "likes", "#shard": "s0", "#version": "version"},
            "ExpressionAttributeValues": {":by": {"N": by.to_string()}, ":one": {"N": "1"}},
        });
        Client::new(self.store).post("/", HEADERS, &update).await.context("cannot change the counter")?;
        self.injected.fetch_add(by.unsigned_abs(), Ordering::Relaxed);
        // The next like of the post would bring the number to the cache; people should not have to wait for one.
        let counter = self.counts.counter(&id).await?;
        let served = Served::new(counter.as_ref(), false, self.clock.now());
        // A cache that is away shows it later.
        let _ = self.cache.update(&[(id.clone(), served)]).await;
        Ok(format!("{post} is off by {by:+}: a recount will find out"))
    }

    fn split(&self) -> anyhow::Result<String> {
        let Some(emulator) = &self.emulator else {
            bail!(Refusal("DynamoDB is a real one, and splits its stream shards itself".to_owned()));
        };
        let children = emulator.split_shard(&self.likes, None, None).map_err(|error| Refusal(error.to_string()))?;
        Ok(format!("the busiest stream shard was split: {} children", children.len()))
    }

    fn pause(&self, paused: bool) -> anyhow::Result<String> {
        let Some(control) = &self.control else { bail!(Refusal("there is no load".to_owned())) };
        control.pause(paused);
        Ok(if paused { "the load is paused" } else { "the load goes on" }.to_owned())
    }
}

#[async_trait]
impl Stack for LocalStack {
    fn snapshot(&self) -> Snapshot {
        self.board.snapshot()
    }

    async fn act(&self, action: Action) -> anyhow::Result<String> {
        match action {
            Action::Kill { part } => self.kill(&part),
            Action::StopCache => self.switch_cache(false),
            Action::StartCache => self.switch_cache(true),
            Action::InjectDrift { post_id, by } => self.inject(&post_id, by).await,
            Action::Recount => {
                self.recounts.enqueue_audit(self.clock.now()).await?;
                Ok("a recount of everything is queued: it begins within seconds".to_owned())
            }
            Action::SplitShard => self.split(),
            Action::PauseLoad { paused } => self.pause(paused),
        }
    }
}
