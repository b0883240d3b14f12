//! A count as the API serves it, and the time `as_of` that it is complete up to.
//!
//! # As of when
//!
//! Kafka acknowledges an event, then the event is a row, then the row's change is in the count. The standing of the
//! counter's partition of `changes` covers the second part: every change that was in the table `likes` by the
//! standing's `as_of` is counted. The consumers' claims cover the first part: when one was stored, at the time `at`,
//! every event of its partition that Kafka had acknowledged by `safe_at` was a row. So [`as_of`] takes, for each
//! partition of `likes` that the counter's events come from, the newest `safe_at` that was stored no later than the
//! standing's `as_of`: rows behind a later one may not be counted yet. It does not matter when the API reads the
//! claim.
//!
//! The events of a set come from the partition that its subject's key hashes to, unless another partitioner has put
//! them elsewhere. A consumer that reads such an event records so in its claim, and from then on the events count as
//! coming from all partitions. Until then `as_of` promises nothing about such events.

use crate::changes::Standing;
use crate::event::partition_of;
use crate::ids::{CounterId, CounterKind};
use crate::register::SafeTimes;
use crate::time::UnixMillis;

/// A counter's number, and how exact and fresh it is known to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Served {
    /// The total as stored, even if it is negative; answers give [`shown`](Self::shown).
    pub likes: i64,
    /// The counter's version, 0 for a post without a counter.
    pub version: u64,
    /// Whether nothing is known that may make the number wrong.
    pub exact: bool,
    /// Every event that Kafka had acknowledged by then is in the number, as [`as_of`] finds out.
    pub as_of: UnixMillis,
}

/// Returns the time up to which a number is complete that was read after `standing`, if its counter's events come from
/// `partitions`. Returns `None` where that is unknown.
pub fn as_of<'a>(standing: &Standing, partitions: impl IntoIterator<Item = &'a SafeTimes>) -> Option<UnixMillis> {
    let stated = standing.as_of?;
    let mut safe = partitions.into_iter().map(|partition| partition.by(stated));
    safe.try_fold(stated, |least, safe_at| Some(least.min(safe_at?)))
}

/// Returns the partitions of a topic that the events of a counter come from.
pub fn sources<'a>(id: &CounterId, partitions: &'a [SafeTimes]) -> &'a [SafeTimes] {
    let is_anywhere = id.name.kind() == CounterKind::Sum || partitions.iter().any(SafeTimes::is_misrouted);
    match u32::try_from(partitions.len()) {
        Ok(count) if count > 0 && !is_anywhere => {
            let home = partition_of(id.post.as_bytes(), count) as usize;
            &partitions[home..=home]
        }
        _ => partitions,
    }
}

impl Served {
    /// Returns the number to show for a set: 0 for a negative total.
    pub fn shown(&self) -> u64 {
        u64::try_from(self.likes).unwrap_or(0)
    }

    /// Returns the number to show: 0 for a negative total of a set, and a sum's total as it is.
    pub fn value(&self, kind: CounterKind) -> i64 {
        if kind == CounterKind::Sum { self.likes } else { self.likes.max(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterName, PostId};
    use crate::register::{Kept, Topic};
    use crate::topic::{Offset, TopicId};

    #[test]
    fn a_number_is_as_of_the_least_time_of_its_partitions_and_of_none_where_one_is_not_known() {
        let standing = Standing { as_of: Some(UnixMillis(10)), ..Standing::default() };
        let times = |at, safe_at| {
            let mut times = SafeTimes::default();
            times.note(UnixMillis(at), Some(UnixMillis(safe_at)));
            times
        };
        let as_of = |partitions: &[SafeTimes]| as_of(&standing, partitions).map(|as_of| as_of.0);
        assert_eq!(as_of(&[times(9, 8)]), Some(8));
        assert_eq!(as_of(&[times(9, 8), times(10, 7), times(2, 30)]), Some(7));
        assert_eq!(as_of(&[times(9, 30)]), Some(10), "never later than the standing");
        assert_eq!(as_of(&[times(9, 8), times(11, 9)]), None, "it is of rows that need not be counted yet");
        assert_eq!(as_of(&[times(9, 8), SafeTimes::default()]), None);
        assert_eq!(super::as_of(&Standing::default(), &[times(9, 8)]), None);
    }

    #[test]
    fn the_events_of_a_set_come_from_its_partition_and_from_all_once_one_has_an_event_of_another() {
        let of = |name| CounterId { post: PostId::new("p").expect("a post"), name };
        let (likes, views) = (of(CounterName::LIKES), of(CounterName::from_marked("+views").expect("a name")));
        let mut partitions = vec![SafeTimes::default(); 4];
        let home = partition_of(b"p", 4) as usize;
        partitions[home].note(UnixMillis(9), Some(UnixMillis(8)));
        assert_eq!(sources(&likes, &partitions), &partitions[home..=home]);
        assert_eq!(sources(&views, &partitions), &partitions[..]);
        let topic = Topic::first(TopicId("t".into()), vec![Offset(0); 4]);
        partitions[(home + 1) % 4].take(&Kept { misrouted: true, ..Kept::first(&topic, Offset(3)) });
        assert_eq!(sources(&likes, &partitions), &partitions[..]);
        assert_eq!(sources(&likes, &[]), &[]);
    }
}
