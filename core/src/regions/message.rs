//! The messages of the topic `counts`, in which each Region publishes its counts to the other Regions, and how they are
//! written and read.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::CLOCKS;
use crate::cached::{StandingAt, Value};
use crate::changes::{DeploymentId, LossNumber, Place, Standing};
use crate::ids::{CounterId, Region};
use crate::time::UnixMillis;
use crate::topic::TopicId;

/// The layout of the messages.
pub const ENTRY_FORMAT: u64 = 1;

/// The key of a standing: no counter's key begins with U+0001.
pub const STANDING_KEY: &str = "\u{1}standing";

/// What one message publishes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// The Region's entry of a counter.
    Counted(CounterId, Value),
    /// The standing of the partition. Its `as_of`: every event that Kafka had acknowledged in that Region by then is
    /// counted.
    Stated(StandingAt),
}

/// A message of the topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToldMessage {
    /// The deployment that published it.
    pub deployment: DeploymentId,
    /// The Region's name.
    pub region: Region,
    /// The topic that it was published in, also where a copy is read. A topic that has lost its end gets another id.
    pub topic: TopicId,
    /// The partition that it was published in. The copy keeps it there.
    pub partition: u32,
    /// When it was published, by the store's clock.
    pub said: UnixMillis,
    pub told: Told,
}

/// Why a record is no message of this topic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadTold {
    /// It has another layout.
    #[error("it has format {0}, and this version reads format {ENTRY_FORMAT}: upgrade this Region first")]
    Format(u64),
    /// It cannot be read.
    #[error("it cannot be read: {0}: find who else writes to the topic, and recreate the copy")]
    Malformed(String),
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    format: u64,
    deployment: Box<str>,
    region: Box<str>,
    topic: Box<str>,
    partition: u32,
    said: u64,
    #[serde(flatten)]
    body: Body,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Body {
    Counted {
        total: i64,
        version: Place,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<Place>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        doubtful: bool,
    },
    Stated {
        at: Place,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        as_of: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss: Option<Place>,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        open: BTreeSet<LossNumber>,
    },
}

#[derive(Deserialize)]
struct Version {
    format: u64,
}

impl ToldMessage {
    /// Returns the key and the value of the record.
    pub fn record(&self) -> (String, Vec<u8>) {
        let (key, body) = match &self.told {
            Told::Counted(counter, Value { likes, version, gap, doubtful }) => (
                counter.stored().into_owned(),
                Body::Counted { total: *likes, version: *version, gap: *gap, doubtful: *doubtful },
            ),
            Told::Stated(StandingAt { at, standing: Standing { as_of, loss, open } }) => (
                STANDING_KEY.to_owned(),
                Body::Stated { at: *at, as_of: as_of.map(|as_of| as_of.0), loss: *loss, open: open.clone() },
            ),
        };
        let (deployment, region) = (self.deployment.0.clone(), self.region.as_str().into());
        let (topic, partition, said) = (self.topic.0.clone(), self.partition, self.said.0);
        let envelope = Envelope { format: ENTRY_FORMAT, deployment, region, topic, partition, said, body };
        (key, serde_json::to_vec(&envelope).expect("texts and integers always serialise"))
    }

    /// Returns the message as far as it may be believed `now`, and `None` for a standing of the future. Caps the time
    /// of publishing at `now`, so that a clock that is ahead does not hide how old the next message is.
    pub fn believable(self, now: UnixMillis) -> Option<Self> {
        let is_possible = match &self.told {
            Told::Counted(..) => true,
            Told::Stated(stated) => {
                let is_past = stated.standing.as_of.is_none_or(|as_of| as_of <= self.said);
                is_past && self.said.since(now) <= CLOCKS
            }
        };
        is_possible.then(|| Self { said: self.said.min(now), ..self })
    }

    /// Returns when the message with this value was published.
    pub fn said_of(value: &[u8]) -> Option<UnixMillis> {
        #[derive(Deserialize)]
        struct Said {
            said: u64,
        }
        serde_json::from_slice(value).ok().map(|Said { said }| UnixMillis(said))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The record is no message of this layout.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Self, BadTold> {
        let malformed = |error: &dyn fmt::Display| BadTold::Malformed(error.to_string());
        let Version { format } = serde_json::from_slice(value).map_err(|error| malformed(&error))?;
        if format != ENTRY_FORMAT {
            return Err(BadTold::Format(format));
        }
        let envelope: Envelope = serde_json::from_slice(value).map_err(|error| malformed(&error))?;
        let key = std::str::from_utf8(key).map_err(|error| malformed(&error))?;
        let told = match envelope.body {
            Body::Counted { total, version, gap, doubtful } => {
                let counter = key.parse().map_err(|error| malformed(&error))?;
                Told::Counted(counter, Value { likes: total, version, gap, doubtful })
            }
            Body::Stated { at, as_of, loss, open } if key == STANDING_KEY => {
                Told::Stated(StandingAt { at, standing: Standing { as_of: as_of.map(UnixMillis), loss, open } })
            }
            Body::Stated { .. } => return Err(malformed(&"a standing under the key of a counter")),
        };
        let region = Region::new(&envelope.region).ok_or_else(|| malformed(&"the region has no name"))?;
        let (deployment, topic) = (DeploymentId(envelope.deployment), TopicId(envelope.topic));
        Ok(Self { deployment, region, topic, partition: envelope.partition, said: UnixMillis(envelope.said), told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PostId;

    fn message(told: Told) -> ToldMessage {
        let region = Region::new("eu").expect("a name");
        let topic = TopicId("t".into());
        ToldMessage { deployment: DeploymentId("d".into()), region, topic, partition: 3, said: UnixMillis(7), told }
    }

    #[test]
    fn a_standing_of_the_future_is_not_believable_and_no_clock_ahead_hides_the_age_of_the_next_message() {
        let stated = |as_of: u64| {
            Told::Stated(StandingAt {
                standing: Standing { as_of: Some(UnixMillis(as_of)), ..Standing::default() },
                ..StandingAt::default()
            })
        };
        let at = |said, told| ToldMessage { said: UnixMillis(said), ..message(told) };
        let now = UnixMillis(100_000);
        let said = |message: ToldMessage| message.believable(now).map(|message| message.said.0);
        assert_eq!(said(at(99_000, stated(98_000))), Some(99_000));
        assert_eq!(said(at(103_000, stated(98_000))), Some(100_000), "within what clocks may differ");
        assert_eq!(said(at(106_000, stated(98_000))), None);
        assert_eq!(said(at(99_000, stated(99_001))), None);
        let post = CounterId::likes(PostId::new("p").expect("a post"));
        assert_eq!(said(at(u64::MAX, Told::Counted(post, Value::default()))), Some(100_000));
    }

    #[test]
    fn what_is_no_message_is_refused_by_name() {
        let (key, value) = message(Told::Stated(StandingAt::default())).record();
        let later = String::from_utf8(value.clone()).expect("JSON").replace("\"format\":1", "\"format\":2");
        assert_eq!(ToldMessage::read(key.as_bytes(), later.as_bytes()), Err(BadTold::Format(2)));
        for (key, value) in
            [("p", &value[..]), (key.as_str(), b"{"), (key.as_str(), b"{\"format\":1}"), ("\u{1f}", b"")]
        {
            assert!(matches!(ToldMessage::read(key.as_bytes(), value), Err(BadTold::Malformed(_))), "{key:?}");
        }
    }
}
