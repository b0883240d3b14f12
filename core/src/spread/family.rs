//! The partitions of one counter, in the order in which they are taken into use.

use xxhash_rust::xxh64::xxh64;

use crate::event::partition_of;
use crate::ids::CounterId;

/// All `partitions` of a topic as `counter` takes them: the one of its post's key first, the others by a hash of counter and
/// partition. The first so many are those of that width, so that every width has the partitions of the smaller ones, and
/// all producers take the same.
pub(super) fn family(counter: &CounterId, partitions: u32) -> Vec<u32> {
    let home = partition_of(counter.post.as_bytes(), partitions);
    let key = counter.stored();
    let rank = |partition: &u32| (*partition != home, xxh64(key.as_bytes(), u64::from(*partition)), *partition);
    let mut family: Vec<u32> = (0..partitions).collect();
    family.sort_by_cached_key(rank);
    family
}
