//! The family of a counter: its partitions, in the order in which producers take them into use.

use xxhash_rust::xxh64::xxh64;

use crate::event::partition_of;
use crate::ids::CounterId;

/// Returns all partitions of a topic in the order for `counter`: first the one of its subject's key, then the others
/// by a hash of counter and partition. A width uses the first so many, so every width includes the smaller ones, and
/// all producers agree.
pub(super) fn family(counter: &CounterId, partitions: u32) -> Vec<u32> {
    let home = partition_of(counter.post.as_bytes(), partitions);
    let key = counter.stored();
    let rank = |partition: &u32| (*partition != home, xxh64(key.as_bytes(), u64::from(*partition)), *partition);
    let mut family: Vec<u32> = (0..partitions).collect();
    family.sort_by_cached_key(rank);
    family
}
