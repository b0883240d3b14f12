//! Stands in for Kafka's own replication where several Regions run on one machine: copies the topic `counts`, in which
//! one Region publishes its counters for the others, to another Kafka or to a log in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer, TopicReader};
use tally_core::regions::STANDING_KEY;
use tally_core::topic::{Offset, Partition};

/// Reads one Region's topic, keeps the last message of each key, and copies these when it is told to: the embedded Kafka
/// deletes what is not read in time.
pub struct Mirror {
    from: Arc<dyn TopicReader>,
    to: Arc<dyn Producer>,
    topic: String,
    lanes: BTreeMap<u32, Lane>,
}

/// A partition: what was read of it, and is not copied yet.
#[derive(Default)]
struct Lane {
    next: Offset,
    /// Everything before this offset was copied.
    copied: Offset,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    standing: Option<Vec<u8>>,
}

impl Mirror {
    /// A mirror from the topic of `from` to `topic`, which begins at the offset 0 of each partition.
    pub fn new(from: Arc<dyn TopicReader>, to: Arc<dyn Producer>, topic: &str) -> Self {
        Self { from, to, topic: topic.to_owned(), lanes: BTreeMap::new() }
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// Kafka does not answer.
    pub async fn read(&mut self) -> Outcome<()> {
        for (partition, log) in self.from.logs().await? {
            let Self { from, lanes, .. } = self;
            let lane = lanes.entry(partition.index).or_default();
            lane.read(&**from, &partition, log.end).await?;
        }
        Ok(())
    }

    /// Copies what was read. After a fault, or if the call is dropped, the next one copies all of it again.
    ///
    /// # Errors
    /// Kafka takes no record.
    pub async fn copy(&mut self) -> Outcome<()> {
        let Self { to, topic, lanes, .. } = self;
        for (index, lane) in lanes {
            let send = async |key: &[u8], value: &[u8]| {
                let (key, value) = (Some(key), Some(value));
                to.send(Outgoing { topic, partition: Some(*index), key, value, headers: &[] }).await
            };
            // A standing is about the entries before it, so it comes last.
            try_join_all(lane.entries.iter().map(|(key, value)| send(key, value))).await?;
            lane.entries.clear();
            if let Some(value) = &lane.standing {
                send(STANDING_KEY.as_bytes(), value).await?;
            }
            (lane.standing, lane.copied) = (None, lane.next);
        }
        Ok(())
    }

    /// Forgets what it has read and not copied, as a process that is killed does.
    pub fn forget(&mut self) {
        for lane in self.lanes.values_mut() {
            *lane = Lane { next: lane.copied, copied: lane.copied, ..Lane::default() };
        }
    }

    /// Begins at the beginning, as a process that has lost its offsets does.
    pub fn begin_again(&mut self) {
        self.lanes.clear();
    }
}

impl Lane {
    async fn read(&mut self, from: &dyn TopicReader, partition: &Partition, end: Offset) -> Outcome<()> {
        while self.next < end {
            let records = from.read(partition, self.next, end).await?;
            let Some(last) = records.last_offset() else { break };
            for record in records.iter() {
                let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default().to_vec());
                if key == STANDING_KEY.as_bytes() {
                    self.standing = Some(value);
                } else {
                    self.entries.insert(key.to_vec(), value);
                }
            }
            self.next = last.next();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;
    use crate::memory::log::Broker;

    async fn copied(to: &Broker) -> String {
        let partition = Partition { topic: "us.counts".into(), index: 1 };
        let records = to.reader("test", "us.counts").read(&partition, Offset(0), Offset(100)).await.unwrap();
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        records.iter().map(|record| text(record.key) + &text(record.value)).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn what_waits_is_copied_once_the_last_of_each_key_and_the_standing_behind_all_of_it() {
        let (from, to) = (Broker::new(), Broker::new());
        from.create_topic("counts", 2);
        to.create_topic("us.counts", 2);
        let publish = |key: &str, value: &str| {
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let record = Outgoing { topic: "counts", partition: Some(1), key, value, headers: &[] };
            from.write(record, UnixMillis(0)).unwrap();
        };
        let mut mirror = Mirror::new(Arc::new(from.reader("mirror", "counts")), Arc::new(to.clone()), "us.counts");
        for (key, value) in [("p", "1"), (STANDING_KEY, "1"), ("q", "1"), ("p", "2"), (STANDING_KEY, "2"), ("p", "3")] {
            publish(key, value);
        }
        mirror.read().await.unwrap();
        // While it is cut, what was read is gone from Kafka.
        from.trim("counts", 1, 6);
        mirror.copy().await.unwrap();
        let expected = format!("p3 q1 {STANDING_KEY}2");
        assert_eq!(copied(&to).await, expected);
        publish("q", "4");
        mirror.read().await.unwrap();
        mirror.forget();
        mirror.copy().await.unwrap();
        assert_eq!(copied(&to).await, expected, "it was killed before it copied that");
        mirror.read().await.unwrap();
        mirror.copy().await.unwrap();
        mirror.copy().await.unwrap();
        assert_eq!(copied(&to).await, expected + " q4");
    }
}
