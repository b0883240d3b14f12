//! A dead letter as it is stored: the record unchanged, with headers that say where it came from and why it was not
//! applied, under the names that Kafka Connect's tools read.

use tally_core::event::Rejection;
use tally_core::fence::{Offset, Partition};
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Outgoing, Producer, Record, Written};

const PREFIX: &str = "__connect.errors.";
const TOPIC: &str = "__connect.errors.topic";
const PARTITION: &str = "__connect.errors.partition";
const OFFSET: &str = "__connect.errors.offset";
const STAGE: &str = "__connect.errors.stage";
const CLASS: &str = "__connect.errors.class.name";
const MESSAGE: &str = "__connect.errors.exception.message";

/// The longest message kept, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Writes the dead letter of `record` to `topic`. Writing it again is harmless: where it came from identifies it.
pub(crate) async fn write(
    producer: &dyn Producer,
    topic: &str,
    from: &Partition,
    record: Record<'_>,
    rejection: &Rejection,
) -> Outcome<Written> {
    let (partition, offset) = (from.index.to_string(), record.offset.to_string());
    let message = cut(rejection.to_string());
    let stage = if matches!(rejection, Rejection::RefusedByStore(_)) { "TASK_PUT" } else { "VALUE_CONVERTER" };
    let why: [Header<'_>; 6] = [
        (TOPIC, Some(from.topic.as_bytes())),
        (PARTITION, Some(partition.as_bytes())),
        (OFFSET, Some(offset.as_bytes())),
        (STAGE, Some(stage.as_bytes())),
        (CLASS, Some(rejection.reason().as_bytes())),
        (MESSAGE, Some(message.as_bytes())),
    ];
    let headers: Vec<Header<'_>> = record.headers().chain(why).collect();
    producer.send(Outgoing { topic, partition: None, key: record.key, value: record.value, headers: &headers }).await
}

fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

/// A dead letter as it is read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter<'a> {
    pub(crate) record: Record<'a>,
    /// Topic, partition and offset of the record, if the headers say so.
    pub(crate) from: Option<(&'a str, u32, Offset)>,
    /// Why it was not applied.
    pub(crate) reason: &'static str,
    pub(crate) message: &'a str,
}

impl<'a> Letter<'a> {
    /// Reads a record of the dead-letter topic.
    pub(crate) fn read(record: Record<'a>) -> Self {
        let text = |name| record.header(name).and_then(|value: &'a [u8]| std::str::from_utf8(value).ok());
        let number = |name| text(name).and_then(|text| text.parse().ok());
        let from = text(TOPIC).zip(number(PARTITION)).zip(number(OFFSET));
        let said = text(CLASS).unwrap_or_default();
        Self {
            record,
            from: from
                .and_then(|((topic, partition), offset)| Some((topic, u32::try_from(partition).ok()?, Offset(offset)))),
            reason: Rejection::REASONS.into_iter().find(|reason| *reason == said).unwrap_or("unknown"),
            message: text(MESSAGE).unwrap_or_default(),
        }
    }

    /// The headers the record had before it was put aside.
    pub(crate) fn original_headers(&self) -> Vec<Header<'a>> {
        self.record.headers().filter(|(name, _)| !name.starts_with(PREFIX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::log::Broker;
    use tally_core::ports::TopicReader;
    use tally_core::ports::log::Records;
    use tally_core::time::UnixMillis;

    use super::*;

    #[tokio::test]
    async fn a_dead_letter_carries_the_record_and_where_and_why() {
        let broker = Broker::new();
        broker.create_topic("likes.dlq", 1);
        let mut records = Records::default();
        let trace = [("trace", Some(&b"t"[..])), ("empty", None)];
        records.push(Offset(41), UnixMillis(9), Some(b"key"), Some(b"\xff"), trace);
        let from = Partition { topic: "likes".into(), index: 3 };
        let record = records.get(0).unwrap();
        write(&broker, "likes.dlq", &from, record, &Rejection::NotUtf8(0)).await.unwrap();

        let reader = broker.reader("g", "likes.dlq");
        let (partition, log) = reader.logs().await.unwrap().remove(0);
        let read = reader.read(&partition, log.start, log.end).await.unwrap();
        let letter = Letter::read(read.get(0).unwrap());
        assert_eq!((letter.record.key, letter.record.value), (Some(&b"key"[..]), Some(&b"\xff"[..])));
        assert_eq!((letter.from, letter.reason), (Some(("likes", 3, Offset(41))), "not_utf8"));
        assert_eq!(letter.message, Rejection::NotUtf8(0).to_string());
        assert_eq!(letter.original_headers(), trace);
        assert_eq!(letter.record.header("__connect.errors.stage"), Some(&b"VALUE_CONVERTER"[..]));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cut = cut("é".repeat(MAX_MESSAGE));
        assert_eq!(cut.len(), MAX_MESSAGE);
        assert!(cut.chars().all(|c| c == 'é'));
    }
}
