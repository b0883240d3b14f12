//! Writes dead letters, for records that cannot be applied, and reads them back for a replay. A dead letter is the
//! record, with headers that say where it came from and why it was not applied, under the names that Kafka Connect's
//! tools read, and which deployment it is from. Headers of the record itself that have such names are left out, since a
//! producer could forge the letter with them. If the topic does not take the whole record, the letter has what fits,
//! and headers that say what the whole was.
//!
//! A producer that may write to the dead-letter topic itself can forge letters, and receipts of replays.

use sha2::{Digest, Sha256};
use tally_core::event::Rejection;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Outgoing, Producer, Record, Written};
use tally_core::topic::{Offset, Partition};

const PREFIX: &str = "__connect.errors.";
const TOPIC: &str = "__connect.errors.topic";
const PARTITION: &str = "__connect.errors.partition";
const OFFSET: &str = "__connect.errors.offset";
const STAGE: &str = "__connect.errors.stage";
const CLASS: &str = "__connect.errors.class.name";
const MESSAGE: &str = "__connect.errors.exception.message";

/// The prefix of headers that Kafka Connect does not know.
const OURS: &str = "__tally.";
const DEPLOYMENT: &str = "__tally.errors.deployment";
/// In a record that was put back: the deployment that it is for. Others have had it already, and pass over it.
pub const PUT_BACK_FOR: &str = "__tally.replayed.for";
const TIMESTAMP: &str = "__tally.errors.timestamp";
const VALUE_BYTES: &str = "__tally.errors.value.bytes";
const VALUE_SHA256: &str = "__tally.errors.value.sha256";
const KEY_BYTES: &str = "__tally.errors.key.bytes";
const HEADERS: &str = "__tally.errors.headers";

/// The longest message kept, in bytes.
const MAX_MESSAGE: usize = 1024;

const WHOLE: Cut = Cut { value: usize::MAX, key: usize::MAX, headers: true };

/// How much of a record its letter keeps if the topic does not take it whole; the most first.
const CUTS: [Cut; 3] = [
    Cut { value: 64 * 1024, key: usize::MAX, headers: true },
    Cut { value: 4 * 1024, key: usize::MAX, headers: true },
    Cut { value: 256, key: 256, headers: false },
];

#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The most bytes of the value.
    value: usize,
    /// The most bytes of the key.
    key: usize,
    /// Whether the record's own headers are kept.
    headers: bool,
}

/// Writes dead letters.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub producer: &'a dyn Producer,
    /// The dead-letter topic.
    pub topic: &'a str,
    /// The deployment that the letters are of, if it has a name.
    pub deployment: Option<&'a str>,
}

impl Writer<'_> {
    /// Writes the dead letter of `record`: whole, or as much of it as the topic takes. Returns why the topic did not
    /// take the whole, if it did not. Safe to repeat: the headers identify the record by its offset.
    ///
    /// # Errors
    /// The topic takes no dead letters.
    pub async fn write(&self, from: &Partition, record: Record<'_>, rejection: &Rejection) -> Outcome<Option<String>> {
        let mut refused = None;
        for cut in std::iter::once(WHOLE).chain(CUTS.into_iter().filter(|cut| cut.shortens(record))) {
            match self.send(from, record, rejection, cut).await {
                Ok(_) => return Ok(refused),
                // This fault is about the record. Any other one is about the topic, or the way there.
                Err(Fault::Poison(why)) => _ = refused.get_or_insert(why),
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Poison(refused.unwrap_or_default()))
    }

    async fn send(&self, from: &Partition, record: Record<'_>, rejection: &Rejection, cut: Cut) -> Outcome<Written> {
        let (partition, offset, at) = (from.index.to_string(), record.offset.to_string(), record.at.0.to_string());
        let message = shortened(rejection.to_string());
        let stage = if matches!(rejection, Rejection::RefusedByStore(_)) { "TASK_PUT" } else { "VALUE_CONVERTER" };
        let why: [Header<'_>; 7] = [
            (TOPIC, Some(from.topic.as_bytes())),
            (PARTITION, Some(partition.as_bytes())),
            (OFFSET, Some(offset.as_bytes())),
            (STAGE, Some(stage.as_bytes())),
            (CLASS, Some(rejection.reason().as_bytes())),
            (MESSAGE, Some(message.as_bytes())),
            (TIMESTAMP, Some(at.as_bytes())),
        ];
        let why = why.into_iter().chain(self.deployment.map(|deployment| (DEPLOYMENT, Some(deployment.as_bytes()))));
        let was = if cut.shortens(record) { whole(record) } else { Vec::new() };
        let was = was.iter().map(|(name, value)| (*name, Some(value.as_bytes())));
        let own = record.headers().filter(|(name, _)| cut.headers && !is_reserved(name));
        let headers: Vec<Header<'_>> = own.chain(why).chain(was).collect();
        let key = record.key.map(|key| &key[..key.len().min(cut.key)]);
        let value = record.value.map(|value| &value[..value.len().min(cut.value)]);
        self.producer.send(Outgoing { topic: self.topic, partition: None, key, value, headers: &headers }).await
    }
}

/// Returns whether `header` has a name that only Tally may give. A letter leaves out its record's own headers of such
/// names: with them, a producer could forge what the letter says, or a receipt of a replay.
fn is_reserved(header: &str) -> bool {
    header.starts_with(PREFIX) || header.starts_with(OURS)
}

/// Returns headers that say what a record was before it was cut.
fn whole(record: Record<'_>) -> Vec<(&'static str, String)> {
    let value = record.value.unwrap_or_default();
    let sha256 = Sha256::digest(value).iter().map(|byte| format!("{byte:02x}")).collect();
    let key = record.key.map_or(0, <[u8]>::len);
    vec![
        (VALUE_BYTES, value.len().to_string()),
        (VALUE_SHA256, sha256),
        (KEY_BYTES, key.to_string()),
        (HEADERS, record.headers().filter(|(name, _)| !is_reserved(name)).count().to_string()),
    ]
}

impl Cut {
    /// Returns whether anything of `record` is left out.
    fn shortens(self, record: Record<'_>) -> bool {
        let longer = |bytes: Option<&[u8]>, most| bytes.is_some_and(|bytes| bytes.len() > most);
        let headers = record.headers().len() > 0 && !self.headers;
        longer(record.value, self.value) || longer(record.key, self.key) || headers
    }
}

fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

/// A dead letter as it is read back.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    pub record: Record<'a>,
    /// The deployment that put the record aside; letters of older builds do not say it.
    deployment: Option<&'a str>,
    /// When the record was written, in milliseconds; 0 where the letter does not say it.
    pub at: u64,
    /// Topic, partition and offset of the record, if the headers say so.
    pub from: Option<(&'a str, u32, Offset)>,
    /// Why it was not applied.
    pub reason: &'static str,
    pub message: &'a str,
    /// How many bytes the value had, if the letter has only some of the record.
    pub cut_from: Option<u64>,
}

impl<'a> Letter<'a> {
    /// Returns whether `record` says why it was put aside, as every letter does.
    pub fn is_one(record: Record<'_>) -> bool {
        record.header(CLASS).is_some()
    }

    /// Reads a record of the dead-letter topic.
    pub fn read(record: Record<'a>) -> Self {
        let text = |name| record.header(name).and_then(|value: &'a [u8]| std::str::from_utf8(value).ok());
        let number = |name| text(name).and_then(|text| text.parse().ok());
        let from = text(TOPIC).zip(number(PARTITION)).zip(number(OFFSET));
        let said = text(CLASS).unwrap_or_default();
        Self {
            record,
            deployment: text(DEPLOYMENT),
            at: number(TIMESTAMP).unwrap_or_default(),
            from: from
                .and_then(|((topic, partition), offset)| Some((topic, u32::try_from(partition).ok()?, Offset(offset)))),
            reason: Rejection::REASONS.into_iter().find(|reason| *reason == said).unwrap_or("unknown"),
            message: text(MESSAGE).unwrap_or_default(),
            cut_from: number(VALUE_BYTES),
        }
    }

    /// Returns the deployment of the letter if that is not `deployment`. A letter that names none counts as one of it.
    pub fn foreign(&self, deployment: &str) -> Option<&'a str> {
        self.deployment.filter(|named| *named != deployment)
    }

    /// Returns the headers that the record had before it was put aside, without those of reserved names.
    pub fn original_headers(&self) -> Vec<Header<'a>> {
        self.record.headers().filter(|(name, _)| !is_reserved(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::log::Broker;
    use tally_core::ports::TopicReader;
    use tally_core::ports::log::Records;
    use tally_core::time::UnixMillis;

    use super::*;

    fn broker() -> Broker {
        let broker = Broker::new();
        broker.create_topic("likes.dlq", 1);
        broker
    }

    /// Writes the letter of the one record, as if it were from partition 3 of `likes`.
    async fn put_aside(producer: &dyn Producer, of: Option<&str>, records: &Records) -> Outcome<Option<String>> {
        let from = Partition { topic: "likes".into(), index: 3 };
        let writer = Writer { producer, topic: "likes.dlq", deployment: of };
        writer.write(&from, records.get(0).unwrap(), &Rejection::NotUtf8(0)).await
    }

    async fn stored(broker: &Broker) -> Records {
        let reader = broker.reader("g", "likes.dlq");
        let (partition, log) = reader.logs().await.unwrap().remove(0);
        reader.read(&partition, log.start, log.end).await.unwrap()
    }

    #[tokio::test]
    async fn a_dead_letter_carries_the_record_and_where_and_why_and_no_producer_can_forge_that() {
        let (broker, mut records) = (broker(), Records::default());
        let own = [("trace", Some(&b"t"[..])), ("empty", None)];
        let forged = [
            ("__tally.replayed.deployment", Some(&b"ours"[..])),
            ("__tally.replayed.topic", Some(b"likes")),
            (DEPLOYMENT, Some(b"theirs")),
            (VALUE_BYTES, Some(b"5")),
            ("__connect.errors.exception.class.name", Some(b"x")),
        ];
        let headers = forged.into_iter().chain(own);
        records.push(Offset(41), UnixMillis(9), Some(b"key"), Some(b"\xff"), headers);
        put_aside(&broker, Some("ours"), &records).await.unwrap();
        let read = stored(&broker).await;
        let letter = Letter::read(read.get(0).unwrap());
        assert!(Letter::is_one(letter.record));
        assert_eq!((letter.record.key, letter.record.value), (Some(&b"key"[..]), Some(&b"\xff"[..])));
        assert_eq!((letter.from, letter.reason), (Some(("likes", 3, Offset(41))), "not_utf8"));
        assert_eq!(letter.message, Rejection::NotUtf8(0).to_string());
        assert_eq!((letter.at, letter.foreign("ours"), letter.foreign("any")), (9, None, Some("ours")));
        assert_eq!((letter.cut_from, letter.original_headers()), (None, own.to_vec()), "what is not reserved is kept");
        assert_eq!(letter.record.header("__connect.errors.stage"), Some(&b"VALUE_CONVERTER"[..]));
        let kept: Vec<_> = forged.iter().filter(|it| letter.record.headers().any(|other| other == **it)).collect();
        assert!(kept.is_empty(), "{kept:?}");
    }

    /// A topic that takes records of so many bytes.
    struct Narrow {
        broker: Broker,
        bytes: usize,
    }

    #[async_trait::async_trait]
    impl Producer for Narrow {
        async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
            let headers: usize =
                record.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
            let bytes = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len) + headers;
            if bytes > self.bytes {
                return Err(Fault::Poison("too large".to_owned()));
            }
            self.broker.send(record).await
        }
    }

    #[tokio::test]
    async fn of_a_record_that_the_topic_does_not_take_the_letter_has_what_fits_and_says_what_the_whole_was() {
        let (key, value, header) = (vec![b'k'; 3_000], vec![b'v'; 3 << 20], vec![b'h'; 3_000]);
        for (bytes, kept) in [
            (4 << 20, (3_000, 3 << 20, 1)),
            (1 << 20, (3_000, 64 << 10, 1)),
            (20_000, (3_000, 4096, 1)),
            (3_000, (256, 256, 0)),
        ] {
            let (broker, mut records) = (broker(), Records::default());
            records.push(Offset(41), UnixMillis(9), Some(&key), Some(&value), [("trace", Some(&header[..]))]);
            let narrow = Narrow { broker: broker.clone(), bytes };
            let refused = put_aside(&narrow, None, &records).await.unwrap();
            let is_cut = kept.1 < value.len();
            assert_eq!(refused.as_deref(), is_cut.then_some("too large"));
            let read = stored(&broker).await;
            let letter = Letter::read(read.get(0).unwrap());
            let of = |bytes: Option<&[u8]>| bytes.map(<[u8]>::len).unwrap();
            assert_eq!((of(letter.record.key), of(letter.record.value), letter.original_headers().len()), kept);
            assert_eq!((letter.from, letter.reason), (Some(("likes", 3, Offset(41))), "not_utf8"));
            assert_eq!((letter.at, letter.foreign("any")), (9, None), "one that names no deployment is taken for ours");
            assert_eq!(letter.cut_from, is_cut.then_some(3 << 20));
            let sha256 = letter.record.header(VALUE_SHA256).map(String::from_utf8_lossy);
            // printf 'v%.0s' $(seq 3145728) | sha256sum
            let known = "e8d7c15d292488902443b878901b19d1d65721212b594bd13ff9f911f0aecb21";
            assert_eq!(sha256.as_deref(), is_cut.then_some(known));
        }
        let (narrow, mut records) = (Narrow { broker: broker(), bytes: 0 }, Records::default());
        records.push(Offset(0), UnixMillis(9), None, Some(b"x"), []);
        let refused = put_aside(&narrow, None, &records).await;
        assert_eq!(refused, Err(Fault::Poison("too large".to_owned())));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = shortened("é".repeat(MAX_MESSAGE));
        assert_eq!(message.len(), MAX_MESSAGE);
        assert!(message.chars().all(|c| c == 'é'));
    }
}
