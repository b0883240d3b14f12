//! The usual topic: the Kafka topic with the events of every counter whose definition names no topic. It is the
//! attribute `topic` of the item `config` of the table `checkpoints`.
//!
//! The version of a row is a generation and an offset, and names no topic. So these counters have their events from one
//! topic at a time. An operator may move them to another topic. Its generation, a number, is above that of every
//! version in the table, so that its events count as later than all rows.

use tally_core::definitions::Definitions;
use tally_core::ports::Outcome;
use tally_core::register::Standstill;

use super::checkpoints::{Checkpoints, decode_definitions, stored_definitions};
use super::item::{Reader, text};
use super::table::Values;

/// The counters of a deployment, and the topic of those whose definition names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    pub definitions: Definitions,
    /// `None` until a consumer has begun with one.
    pub topic: Option<String>,
}

impl Usual {
    pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        Ok(Self { definitions: decode_definitions(reader)?, topic: reader.get("topic")? })
    }

    /// Returns whether the usual topic is not known yet, and may be `topic`.
    pub fn is_open_to(&self, topic: &str) -> bool {
        self.topic.is_none() && !self.definitions.name_topic(topic)
    }

    /// Returns why no consumer may write the events of `topic`; `None` if it may.
    pub fn misfit(&self, topic: &str) -> Option<Standstill> {
        let rows = self.topic.as_ref().filter(|usual| *usual != topic && !self.definitions.name_topic(topic))?;
        Some(Standstill::OtherTopic { rows: rows.clone(), found: topic.to_owned() })
    }
}

impl Checkpoints {
    /// Returns the definitions and the usual topic, from one consistent read.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn usual(&self) -> Outcome<Usual> {
        let found = self.stored().await?.unwrap_or_default();
        Usual::decode(&self.table().reader(&found))
    }

    /// Names `to` as the usual topic if the counters and the usual topic still are as `seen`: an operator may have defined
    /// a counter with `to` for its own topic since. Returns whether `to` is named afterwards. Safe to repeat: the condition
    /// is false once it was carried out.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn move_usual(&self, seen: &Usual, to: &str) -> Outcome<bool> {
        let mut values = Values::default();
        let stands = values.same("topic", seen.topic.as_deref().map(text));
        let counters = values.same("counters", stored_definitions(&seen.definitions));
        let condition = format!("{stands} AND {counters}");
        let is_moved = self.replace("topic", text(to), &condition, values).await?;
        Ok(is_moved || self.usual().await?.topic.as_deref() == Some(to))
    }
}
