//! The change feed: each new count as a message of its own, keyed by its counter. Messages are absolute, so the last one of a
//! counter says everything.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterName};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::served::Served;

use crate::metrics;
use crate::publisher::{Destination, Sent};

/// Messages under way at once. No two of them are of one counter: a counter waits once.
const CONCURRENCY: usize = 128;

/// A topic as a destination.
pub(crate) struct FeedTopic {
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) topic: String,
}

/// The value of a message about likes.
#[derive(Serialize)]
struct Likes<'a> {
    post_id: &'a str,
    likes: i64,
    version: u64,
    as_of: u64,
}

/// The value of a message about another counter.
#[derive(Serialize)]
struct Other<'a> {
    post_id: &'a str,
    counter: &'a str,
    value: i64,
    version: u64,
    as_of: u64,
}

fn message(id: &CounterId, count: &Served) -> Vec<u8> {
    let (post_id, value, version, as_of) = (&*id.post, count.value(id.name.kind()), count.version, count.as_of.0);
    let message = if id.name == CounterName::LIKES {
        serde_json::to_vec(&Likes { post_id, likes: value, version, as_of })
    } else {
        serde_json::to_vec(&Other { post_id, counter: id.name.as_str(), value, version, as_of })
    };
    message.expect("a flat record of text and numbers is JSON")
}

impl FeedTopic {
    async fn send_one(&self, id: CounterId, count: Served) -> Result<(), (CounterId, Served, Fault)> {
        let (key, value) = (id.stored(), message(&id, &count));
        let outgoing = Outgoing {
            topic: &self.topic,
            partition: None,
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        self.producer.send(outgoing).await.map(|_| ()).map_err(|fault| (id.clone(), count, fault))
    }
}

impl Destination for FeedTopic {
    const NAME: &'static str = "feed";

    async fn send(&self, counts: Vec<(CounterId, Served)>) -> Sent {
        let sent = stream::iter(counts).map(|(id, count)| self.send_one(id, count)).buffer_unordered(CONCURRENCY);
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
    use tally_core::ids::{CounterKind, PostId};
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn a_message_has_the_documented_form_and_only_a_set_below_zero_shows_0() {
        let count = Served { likes: -3, version: 7, exact: false, as_of: UnixMillis(99) };
        let said = |name: &str, kind| {
            let (post, name) = (PostId::new("a\"b").unwrap(), CounterName::new(name, kind).unwrap());
            String::from_utf8(message(&CounterId { post, name }, &count)).unwrap()
        };
        assert_eq!(said("likes", CounterKind::Set), r#"{"post_id":"a\"b","likes":0,"version":7,"as_of":99}"#);
        let other = |counter, value| {
            format!(r#"{{"post_id":"a\"b","counter":"{counter}","value":{value},"version":7,"as_of":99}}"#)
        };
        assert_eq!(said("retweets", CounterKind::Set), other("retweets", 0));
        assert_eq!(said("views", CounterKind::Sum), other("views", -3));
    }
}
