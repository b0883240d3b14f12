//! Warns about misrouted events, which are in another partition than their key says: once a minute, with what one of
//! them shows of its producer, since a record names no client.

use std::time::Duration;

use parking_lot::Mutex;
use tally_core::event::partition_of;
use tally_core::ports::log::Record;
use tally_core::topic::Partition;

const EVERY: Duration = Duration::from_secs(60);

/// Headers in which producers name themselves: CloudEvents' own, and two that are common.
const SOURCES: [&str; 3] = ["ce_source", "client.id", "source"];

/// When the process warned last, and how many events there were since.
#[derive(Debug, Default)]
pub(crate) struct Warning(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    at: Option<Duration>,
    events: u64,
}

impl Warning {
    /// Takes note of so many events in `partition` of so many. If it is time to, warns with the last one, whose key
    /// should be `expected`, or whose partition another one.
    pub(crate) fn tell(
        &self,
        now: Duration,
        partition: &Partition,
        last: Record<'_>,
        expected: Option<&str>,
        (events, partitions): (u64, u32),
    ) {
        let Some(events) = self.due(now, events) else { return };
        let key = last.key;
        let why = why(key, expected, partition.index, partitions);
        let source = source(last);
        tracing::warn!(
            events,
            %partition,
            offset = %last.offset,
            key = key.map(|key| String::from_utf8_lossy(key).into_owned()),
            source,
            "events lie in another partition than their key says, so that two of one user may be applied in the wrong \
             order; the last one: {why}"
        );
    }

    /// Returns how many events there were since the last warning, if it is time for one.
    fn due(&self, now: Duration, events: u64) -> Option<u64> {
        let mut told = self.0.lock();
        told.events += events;
        if told.at.is_some_and(|at| now.saturating_sub(at) < EVERY) {
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.events))
    }
}

/// Returns the source that the record's headers name.
fn source(record: Record<'_>) -> Option<String> {
    let named = SOURCES.iter().find_map(|name| record.header(name));
    named.map(|source| String::from_utf8_lossy(source).into_owned())
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
    use super::*;

    #[test]
    fn a_warning_comes_once_a_minute_and_says_how_many_there_were() {
        let warning = Warning::default();
        let at = Duration::from_secs;
        assert_eq!(warning.due(at(5), 2), Some(2));
        assert_eq!(warning.due(at(6), 3), None);
        assert_eq!(warning.due(at(64), 1), None);
        assert_eq!(warning.due(at(65), 1), Some(5));
        assert_eq!(warning.due(at(66), 1), None);
    }

    #[test]
    fn what_a_producer_did_shows_in_its_record() {
        let key = b"post-7";
        let belongs = partition_of(key, 12);
        let crc = crc32fast::hash(key) % 12;
        let fnv = fnv1a(key, 12);
        assert!(belongs != crc && crc != fnv && belongs != fnv, "{belongs} {crc} {fnv}");
        let said = |partition| why(Some(key), Some("post-7"), partition, 12);
        assert!(said(crc).contains("murmur2_random"), "{}", said(crc));
        assert!(said(fnv).contains("Sarama"), "{}", said(fnv));
        let other = (0..12).find(|partition| ![belongs, crc, fnv].contains(partition)).unwrap();
        assert_eq!(said(other), format!("murmur2 of its key is partition {belongs}"));
        assert!(why(None, Some("post-7"), 1, 12).contains("no key"));
        assert_eq!(why(Some(b"user-1"), Some("post-7"), 1, 12), "its key is to be \"post-7\"");
    }
}
