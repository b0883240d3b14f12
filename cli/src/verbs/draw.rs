//! `tally draw verify`: checks a *draw*, the record of who was first at a threshold, against the topic of events (the
//! log).

mod judged;
mod verify;

use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_consumer::letters_of;
use tally_core::ids::{CounterId, CounterKind, PostId};
use tally_service::Invalid;

use self::judged::Found;
use self::verify::Draw;
use crate::desk::{Desk, Where};
use crate::health::{FOUND_SOMETHING, UNAVAILABLE};
use crate::said::{Answer, Table, plain};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the record of who was first at a threshold is as it was written, and is what the log says: `true`,
    /// `false`, `gone` or `unread`. Exits with 1 if it is not, and with 69 where the log cannot be read or cannot say
    /// it: it is cut, or an event has a dead letter and may have counted all the same
    Verify {
        /// The post, or another subject
        #[arg(value_name = "POST")]
        post: PostId,
        /// The counter's name
        #[arg(value_name = "COUNTER")]
        counter: String,
        /// The threshold
        #[arg(value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
        n: i64,

        #[command(flatten)]
        of: Box<Where>,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self::Verify { post, counter, n, of } = self;
        let desk = Desk::open(*of).await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let invalid = |why: &str| Invalid::variable("COUNTER", format!("{counter:?} {why}"));
        let definition = defined.named(&counter).ok_or_else(|| invalid("is no counter of the deployment"))?;
        if !definition.has_milestones() {
            return Err(invalid("has an action that takes off: who was first at a threshold has no meaning").into());
        }
        let topic = definition.topic.as_deref().unwrap_or(&desk.topic);
        let draw = Draw {
            counter: CounterId { post, name: definition.name.clone() },
            n,
            milestones: desk.recounts.clone(),
            claims: desk.claims.clone(),
            deployment: desk.deployment()?.to_owned(),
            topic_name: topic.to_owned(),
            topic: Arc::new(desk.reader(topic)?),
            letters: Arc::new(desk.reader(&letters_beside(topic, &desk.topic, &desk.dead_letter_topic))?),
            definitions: defined.said_in(topic),
        };
        let (verdict, detail, code) = match draw.persist(desk.clock).await {
            Found::True(told) => ("true", told, 0),
            Found::False(why) => ("false", why, FOUND_SOMETHING),
            Found::Gone(why) => ("gone", why, UNAVAILABLE),
            Found::Unread(fault) => ("unread", fault.to_string(), UNAVAILABLE),
        };
        let text = said(verdict, &detail, definition.name.kind());
        Ok(Answer::new(json!({"verdict": verdict, "detail": detail}), text).exiting_with(code))
    }
}

/// Says what was found. The `detail` of `true` is the winner and the winner's event as JSON; otherwise it is the reason.
/// The topic of events proves the winner of a sum. Of a set it proves only that the member was there: changes of
/// different rows are counted in the order of the topic `changes`.
fn said(verdict: &str, detail: &str, kind: CounterKind) -> String {
    let Ok(told) = serde_json::from_str::<serde_json::Map<_, _>>(detail) else {
        return format!("{verdict}: {}", plain(detail));
    };
    let mut table = Table::default();
    told.iter().for_each(|(name, value)| table.row([name, value]));
    let proved = match kind {
        CounterKind::Sum => "the record is what the log says",
        CounterKind::Set => "the record is unchanged, and the log has the member's event; it does not prove the order",
    };
    format!("{verdict}: {proved}\n{table}")
}

/// Returns the topic of dead letters for `topic`: the deployment's one (`letters`), unless that has the name which
/// follows from its topic of likes (`own`). Then the name for `topic` follows from `topic`.
fn letters_beside(topic: &str, own: &str, letters: &str) -> String {
    if topic == own || letters != letters_of(own) { letters.to_owned() } else { letters_of(topic) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counters_own_topic_has_letters_of_its_own_unless_one_topic_was_named_for_all() {
        assert_eq!(letters_beside("likes", "likes", "bad"), "bad");
        assert_eq!(letters_beside("views", "likes", "likes.dlq"), "views.dlq");
        assert_eq!(letters_beside("views", "likes", "bad"), "bad");
    }

    #[test]
    fn a_true_record_is_shown_field_by_field() {
        let told = said("true", r#"{"n":10,"user":"u\u001b"}"#, CounterKind::Sum);
        assert_eq!(told, "true: the record is what the log says\nn     10\nuser  \"u\\u001b\"\n");
        let of_set = said("true", r#"{"n":10}"#, CounterKind::Set);
        assert!(of_set.contains("it does not prove the order"), "{of_set}");
        assert_eq!(said("gone", "the log is cut", CounterKind::Sum), "gone: the log is cut");
    }
}
