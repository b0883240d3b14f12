//! Reads the topic of dead letters, the records that the consumer could not apply: `list` for `tally dlq list` and
//! `tally dlq show`, `left` for the number in `tally status`. Neither has letters of other deployments, or letters
//! whose record a replay has put back.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::Args;
use clap::builder::TypedValueParser as _;
use serde::Serialize;
use tally_consumer::letter::Letter;
use tally_core::event::Rejection;
use tally_core::ports::log::Record;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};

use super::receipts::{Identity, Receipts, letter};
use crate::said::{Answer, Table, or_dash, plain};

/// Which dead letters are meant: all, if none of the flags is given.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Those put aside for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    pub(super) reason: Option<String>,

    /// Those put aside at this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MILLIS", value_parser = clap::value_parser!(u64).map(UnixMillis))]
    pub(super) since: Option<UnixMillis>,

    /// Those of the record that had this partition and this offset.
    #[arg(skip)]
    pub(super) from: Option<(u32, u64)>,
}

fn reason(text: &str) -> Result<String, String> {
    let known = Rejection::REASONS.contains(&text);
    known.then(|| text.to_owned()).ok_or_else(|| format!("one of {}", Rejection::REASONS.join(", ")))
}

/// A dead letter as it is shown: where its record came from, and why it was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Described {
    pub(super) topic: Option<String>,
    pub(super) partition: Option<u32>,
    pub(super) offset: Option<u64>,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// How many bytes the record's value had, if the letter has only the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cut_from: Option<u64>,
    /// Whether a replay has put the record back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_put_back: bool,
    /// What the record holds. Only `tally dlq show` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<Content>,
}

/// What a record holds. Bytes that are no UTF-8 are escaped as in Rust. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Content {
    /// When the record was written; 0 if its letter does not say it.
    pub(super) written: u64,
    /// When the letter was written.
    pub(super) put_aside: u64,
    pub(super) key: Option<String>,
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) value: Option<String>,
}

/// The dead letters that were found.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Letters {
    /// The first letters that no replay has put back. For one record, those that were put back, too.
    pub(super) letters: Vec<Described>,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    pub(super) total: u64,
    /// How many letters are about records that were put back. `reasons` and `total` do not have them.
    pub(super) put_back: u64,
    /// How many letters each other deployment has in the same topic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) foreign: BTreeMap<String, u64>,
}

impl From<Letters> for Answer {
    fn from(found: Letters) -> Self {
        Self::new(&found, found.text()).wrong_if(found.total > 0)
    }
}

impl Letters {
    fn text(&self) -> String {
        if self.letters.iter().any(|letter| letter.record.is_some()) {
            return self.letters.iter().map(shown).collect::<Vec<_>>().join("\n");
        }
        let mut letters = Table::headed(["topic", "partition", "offset", "reason", "message"]);
        for Described { topic, partition, offset, reason, message, .. } in &self.letters {
            letters.row([&or_dash(topic.as_ref()), &or_dash(*partition), &or_dash(*offset), reason, message]);
        }
        let mut reasons = Table::headed(["reason", "letters"]);
        for (reason, count) in &self.reasons {
            reasons.row([reason, count]);
        }
        let foreign = self.foreign.iter().map(|(other, count)| format!("\n{count} more of {}", plain(other)));
        let put_back =
            if self.put_back > 0 { format!(", {} more were put back", self.put_back) } else { String::new() };
        let foreign = foreign.collect::<String>();
        match self.total {
            0 => format!("no letters{put_back}{foreign}"),
            total => format!("{letters}\n{reasons}\n{total} in all{put_back}{foreign}"),
        }
    }
}

/// Returns a letter with what its record holds, as text.
fn shown(letter: &Described) -> String {
    let Described { topic, partition, offset, reason, message, cut_from, is_put_back, record } = letter;
    let mut table = Table::default();
    table.row([&"topic", &or_dash(topic.as_ref())]);
    table.row([&"partition", &or_dash(*partition)]);
    table.row([&"offset", &or_dash(*offset)]);
    table.row([&"reason", reason]);
    table.row([&"message", message]);
    table.row([&"put back", &if *is_put_back { "yes" } else { "no" }]);
    if let Some(Content { written, put_aside, key, headers, value }) = record {
        if *written > 0 {
            table.row([&"written", &UnixMillis(*written).date()]);
        }
        table.row([&"put aside", &UnixMillis(*put_aside).date()]);
        table.row([&"key", &key.as_deref().unwrap_or("none")]);
        for (name, value) in headers {
            table.row([&"header", &format!("{name}: {}", value.as_deref().unwrap_or("none"))]);
        }
        let cut = cut_from.map_or(String::new(), |bytes| format!(" (cut, it had {bytes} bytes)"));
        table.row([&"value", &format!("{}{cut}", value.as_deref().unwrap_or("none"))]);
    }
    table.to_string()
}

impl Wanted {
    pub(super) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn has(&self, letter: &Letter<'_>) -> bool {
        let reason = self.reason.as_ref().is_none_or(|reason| reason == letter.reason);
        let place = letter.from.map(|(_, partition, offset)| (partition, offset.0));
        reason
            && self.since.is_none_or(|since| letter.record.at >= since)
            && (self.from.is_none() || place == self.from)
    }
}

/// Reads the dead letters of `deployment` that are meant, and describes the first `limit` that no replay has put back.
/// For one record it describes those that were put back, too, and what the record holds. `topic` is that of the
/// receipts.
///
/// # Errors
/// The letters cannot be read.
pub(super) async fn list(
    reader: &dyn TopicReader,
    (deployment, topic): (&str, &str),
    wanted: &Wanted,
    limit: usize,
) -> anyhow::Result<Letters> {
    let mut found = Letters::default();
    let logs = reader.logs().await.context("cannot look at the dead letters")?;
    let known = put_back_of(reader, &logs, deployment, topic)
        .await
        .context("cannot read which letters were replayed")?
        .with_warnings();
    for (partition, log) in logs {
        let note = |record: Record<'_>| {
            let Some(letter) = letter(record).filter(|letter| wanted.has(letter)) else { return };
            if let Some(other) = letter.foreign(deployment) {
                *found.foreign.entry(other.to_owned()).or_default() += 1;
                return;
            }
            let is_put_back = Identity::of(&letter, deployment, topic).is_some_and(|of| known.has(of));
            found.put_back += u64::from(is_put_back);
            if !is_put_back {
                *found.reasons.entry(letter.reason).or_default() += 1;
                found.total += 1;
            } else if wanted.from.is_none() {
                return;
            }
            if found.letters.len() < limit {
                let record = wanted.from.map(|_| content(&letter));
                found.letters.push(described(&letter, is_put_back, record));
            }
        };
        each(reader, &partition, log.start, log.end, note).await.context("cannot read dead letters")?;
    }
    Ok(found)
}

/// Reads `partition` from `from` up to before `to`, and hands each record to `take`.
pub(in crate::verbs) async fn each(
    reader: &dyn TopicReader,
    partition: &Partition,
    from: Offset,
    to: Offset,
    mut take: impl FnMut(Record<'_>),
) -> Outcome<()> {
    let mut at = from;
    while at < to {
        let records = reader.read(partition, at, to).await?;
        let Some(last) = records.last_offset() else { break };
        records.iter().filter(|record| record.offset < to).for_each(&mut take);
        at = last.next();
    }
    Ok(())
}

/// Returns how many dead letters of `deployment` no replay has put back. Receipts count if they are about `topic`. Reads
/// until it has found `most` letters of `deployment`. What it has not read then counts by offsets alone, with receipts
/// and other deployments' letters.
///
/// # Errors
/// The topic cannot be read.
pub(in crate::verbs) async fn left(
    reader: &dyn TopicReader,
    (deployment, topic): (&str, &str),
    most: usize,
) -> anyhow::Result<u64> {
    let (mut unread, mut letters, mut receipts) = (0, Vec::new(), Receipts::default());
    for (partition, log) in reader.logs().await.context("cannot look at the dead letters")? {
        let mut at = log.start;
        while at < log.end && letters.len() < most {
            let records = reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
            for record in records.iter() {
                let letter = letter(record).filter(|letter| letter.foreign(deployment).is_none());
                letters.extend(letter.map(|letter| Identity::of(&letter, deployment, topic)));
                // A letter's receipt comes after it.
                receipts.read(&partition, record, deployment, topic);
            }
            at = records.last_offset().map_or(log.end, Offset::next);
        }
        unread += log.end.0.saturating_sub(at.0);
    }
    let known = receipts.with_warnings();
    Ok(unread + letters.iter().filter(|of| of.is_none_or(|of| !known.has(of))).count() as u64)
}

/// Reads the receipts about `topic` and `deployment`.
pub(super) async fn put_back_of(
    reader: &dyn TopicReader,
    logs: &[(Partition, Log)],
    deployment: &str,
    topic: &str,
) -> Outcome<Receipts> {
    let mut receipts = Receipts::default();
    for (partition, log) in logs {
        let note = |record: Record<'_>| receipts.read(partition, record, deployment, topic);
        each(reader, partition, log.start, log.end, note).await?;
    }
    Ok(receipts)
}

fn described(letter: &Letter<'_>, is_put_back: bool, record: Option<Content>) -> Described {
    Described {
        topic: letter.from.map(|(topic, ..)| topic.to_owned()),
        partition: letter.from.map(|(_, partition, _)| partition),
        offset: letter.from.map(|(.., offset)| offset.0),
        reason: letter.reason,
        message: letter.message.to_owned(),
        cut_from: letter.cut_from,
        is_put_back,
        record,
    }
}

fn content(letter: &Letter<'_>) -> Content {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    };
    let headers = letter.original_headers();
    Content {
        written: letter.at,
        put_aside: letter.record.at.0,
        key: letter.record.key.map(text),
        headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value.map(text))).collect(),
        value: letter.record.value.map(text),
    }
}
