//! From a Kafka record to an event: the value's decoder, the CloudEvents headers of the binary mode, and whether the
//! record lies where its key scheme says.

use tally_core::event::{KeyScheme, LikeEvent, Rejection, decode, partition_of};
use tally_core::ids::ShardCount;
use tally_core::ports::log::Record;

/// The event of a record. In CloudEvents' binary mode the attributes are headers and the value is the event itself.
pub(crate) fn of(record: Record<'_>) -> Result<LikeEvent<'_>, Rejection> {
    if record.headers().len() > 0
        && let Some(version) = record.header("ce_specversion")
        && !version.starts_with(b"1.")
    {
        return Err(Rejection::BadEnvelope("specversion is not 1.x"));
    }
    decode(record.value, record.at)
}

/// Where a topic's records belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    pub(crate) scheme: KeyScheme,
    pub(crate) shards: ShardCount,
    pub(crate) partitions: u32,
}

impl Routing {
    /// Whether `event` belongs into `partition`.
    pub(crate) fn fits(&self, event: &LikeEvent<'_>, partition: u32) -> bool {
        let belongs = match self.scheme {
            KeyScheme::Post => partition_of(event.post().as_bytes(), self.partitions),
            scheme => partition_of(scheme.key(event.post(), event.user(), self.shards).as_bytes(), self.partitions),
        };
        belongs == partition
    }
}

#[cfg(test)]
mod tests {
    use tally_core::fence::Offset;
    use tally_core::ports::log::{Header, Records};
    use tally_core::time::UnixMillis;

    use super::*;

    const EVENT: &[u8] = br#"{"post_id":"p","user_id":"u","action":"like","ts":5}"#;

    fn reason(value: &[u8], headers: &[Header<'_>]) -> &'static str {
        let mut records = Records::default();
        records.push(Offset(0), UnixMillis(1), None, Some(value), headers.iter().copied());
        of(records.get(0).unwrap()).map_or_else(|rejection| rejection.reason(), |_| "accepted")
    }

    #[test]
    fn both_modes_of_cloud_events_are_accepted_and_other_versions_are_not() {
        let version = |version: &'static [u8]| [("ce_id", Some(&b"1"[..])), ("ce_specversion", Some(version))];
        assert_eq!(reason(EVENT, &version(b"1.0")), "accepted");
        assert_eq!(reason(EVENT, &version(b"0.3")), "bad_envelope");
        assert_eq!(reason(EVENT, &[]), "accepted");
        let structured = [br#"{"specversion":"1.0","id":"1","data":"#, EVENT, b"}"].concat();
        assert_eq!(reason(&structured, &[("content-type", Some(b"application/cloudevents+json"))]), "accepted");
        assert_eq!(reason(b"{}", &version(b"1.0")), "missing_field");
    }

    #[test]
    fn an_event_fits_the_partition_of_its_key_alone() {
        let mut records = Records::default();
        records.push(Offset(0), UnixMillis(1), None, Some(EVENT), []);
        let event = of(records.get(0).unwrap()).unwrap();
        for scheme in [KeyScheme::Post, KeyScheme::PostShard] {
            let routing = Routing { scheme, shards: ShardCount::DEFAULT, partitions: 12 };
            let fitting: Vec<u32> = (0..12).filter(|partition| routing.fits(&event, *partition)).collect();
            let key = scheme.key("p", "u", ShardCount::DEFAULT);
            assert_eq!(fitting, [partition_of(key.as_bytes(), 12)]);
        }
    }
}
