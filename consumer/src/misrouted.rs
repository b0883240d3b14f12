//! Warns about misrouted events, which are in another partition than their key says: once a minute, with what the last
//! of them shows of its producer, since a record names no client. Each partition's tick looks whether it is time to, so
//! a burst is told even if nothing follows it.

use std::time::Duration;

use parking_lot::Mutex;
use tally_core::event::partition_of;
use tally_core::ports::log::Record;
use tally_core::topic::{Offset, Partition};
use tally_service::Seldom;

const EVERY: Duration = Duration::from_secs(60);

/// Headers in which producers name themselves: CloudEvents' own, and two that are common.
const SOURCES: [&str; 3] = ["ce_source", "client.id", "source"];

/// How many events there were since the last warning, and the last of them.
#[derive(Debug, Default)]
pub(crate) struct Warning {
    told: Seldom,
    untold: Mutex<Option<(u64, Last)>>,
}

/// What the last event shows.
#[derive(Debug)]
pub(crate) struct Last {
    partition: Partition,
    offset: Offset,
    key: Option<String>,
    source: Option<String>,
    why: String,
}

impl Last {
    /// Describes `record`, which lies in `partition`; the topic has `partitions` partitions. Its key should be `expected`;
    /// if it is, the record should lie in another partition.
    pub(crate) fn of(partition: &Partition, record: Record<'_>, expected: Option<&str>, partitions: u32) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            partition: partition.clone(),
            offset: record.offset,
            key: record.key.map(text),
            source: SOURCES.iter().find_map(|name| record.header(name)).map(text),
            why: why(record.key, expected, partition.index, partitions),
        }
    }
}

impl Warning {
    /// Takes note of so many events, the last of which is this one.
    pub(crate) fn note(&self, events: u64, last: Last) {
        let mut untold = self.untold.lock();
        let before = untold.take().map_or(0, |(events, _)| events);
        *untold = Some((before + events, last));
    }

    /// Warns if there were events since the last warning, and it is time to.
    pub(crate) fn tell(&self) {
        let Some((events, last)) = self.untold.lock().take_if(|_| self.told.is_due(EVERY)) else { return };
        let Last { partition, offset, key, source, why } = last;
        tracing::warn!(
            events,
            %partition,
            %offset,
            key,
            source,
            "events lie in another partition than their key says, so that two of one user may be applied in the wrong \
             order; the last one: {why}"
        );
    }
}

/// Says what the producer did, if the record shows it.
fn why(key: Option<&[u8]>, expected: Option<&str>, partition: u32, partitions: u32) -> String {
    let Some(key) = key else { return "it has no key, and needs that of its post".to_owned() };
    if let Some(expected) = expected.filter(|expected| expected.as_bytes() != key) {
        return format!("its key is to be {expected:?}");
    }
    let partitions = partitions.max(1);
    let belongs = partition_of(key, partitions);
    if crc32fast::hash(key) % partitions == partition {
        return format!(
            "its partition is that of CRC32, the default of librdkafka and the clients built on it, and murmur2's is \
             {belongs}: set partitioner=murmur2_random"
        );
    }
    if fnv1a(key, partitions) == partition {
        return format!(
            "its partition is that of FNV-1a, the default of Sarama and the hash balancer of kafka-go, and murmur2's is \
             {belongs}"
        );
    }
    format!("murmur2 of its key is partition {belongs}")
}

/// Returns where Sarama sends a key: FNV-1a of 32 bits, as a signed number without its sign.
fn fnv1a(key: &[u8], partitions: u32) -> u32 {
    let hash = key.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let partitions = i64::from(partitions);
    let rest = i64::from(hash.cast_signed()) % partitions;
    u32::try_from(rest.abs()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tally_core::ports::log::Records;
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn what_a_producer_did_shows_in_its_record() {
        let key = b"post-7";
        let belongs = partition_of(key, 12);
        let crc = crc32fast::hash(key) % 12;
        let fnv = fnv1a(key, 12);
        assert!(belongs != crc && crc != fnv && belongs != fnv, "{belongs} {crc} {fnv}");
        let said = |partition| why(Some(key), Some("post-7"), partition, 12);
        let mut records = Records::default();
        records.push(Offset(3), UnixMillis(0), Some(key), None, [("ce_source", Some(&b"/mobile/backend"[..]))]);
        let partition = Partition { topic: "likes".into(), index: crc };
        let last = Last::of(&partition, records.get(0).unwrap(), Some("post-7"), 12);
        assert_eq!((last.key.as_deref(), last.source.as_deref()), (Some("post-7"), Some("/mobile/backend")));
        assert!(last.why.contains("murmur2_random"), "{}", last.why);
        assert!(said(fnv).contains("Sarama"), "{}", said(fnv));
        let other = (0..12).find(|partition| ![belongs, crc, fnv].contains(partition)).unwrap();
        assert_eq!(said(other), format!("murmur2 of its key is partition {belongs}"));
        assert!(why(None, Some("post-7"), 1, 12).contains("no key"));
        assert_eq!(why(Some(b"user-1"), Some("post-7"), 1, 12), "its key is to be \"post-7\"");
    }
}
