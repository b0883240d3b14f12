//! The change feed: each new count of likes as a message of its own, keyed by post. Messages are absolute, so the last one of
//! a post says everything.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterName, PostId};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::served::Served;

use crate::metrics;
use crate::publisher::{Destination, Sent};

/// Messages under way at once. No two of them are of one post: a post waits once.
const CONCURRENCY: usize = 128;

/// A topic as a destination.
pub(crate) struct FeedTopic {
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) topic: String,
}

/// The message's value.
#[derive(Serialize)]
struct Message<'a> {
    post_id: &'a str,
    likes: u64,
    version: u64,
    as_of: u64,
}

impl Message<'_> {
    fn value(post: &PostId, count: &Served) -> Vec<u8> {
        let message = Message { post_id: post, likes: count.shown(), version: count.version, as_of: count.as_of.0 };
        serde_json::to_vec(&message).expect("a flat record of text and numbers is JSON")
    }
}

impl FeedTopic {
    async fn send_one(&self, id: CounterId, count: Served) -> Result<(), (CounterId, Served, Fault)> {
        let value = Message::value(&id.post, &count);
        let outgoing = Outgoing {
            topic: &self.topic,
            partition: None,
            key: Some(id.post.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        self.producer.send(outgoing).await.map(|_| ()).map_err(|fault| (id.clone(), count, fault))
    }
}

impl Destination for FeedTopic {
    const NAME: &'static str = "feed";

    async fn send(&self, counts: Vec<(CounterId, Served)>) -> Sent {
        // A message has no place for the counter's name yet.
        let likes = counts.into_iter().filter(|(id, _)| id.name == CounterName::LIKES);
        let sent = stream::iter(likes).map(|(id, count)| self.send_one(id, count)).buffer_unordered(CONCURRENCY);
        let sent: Vec<_> = sent.collect().await;
        let (mut left, mut outcome) = (Vec::new(), Ok(()));
        for result in sent {
            match result {
                Ok(()) => metrics::fed("sent", 1),
                Err((id, count, fault)) => {
                    metrics::fed("failed", 1);
                    left.push((id, count));
                    outcome = Err(fault);
                }
            }
        }
        Sent { left, outcome }
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn a_message_has_the_documented_form() {
        let count = Served { likes: -3, version: 7, exact: false, as_of: UnixMillis(99) };
        let value = Message::value(&PostId::new("a\"b").unwrap(), &count);
        assert_eq!(value, br#"{"post_id":"a\"b","likes":0,"version":7,"as_of":99}"#);
    }
}
