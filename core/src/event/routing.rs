//! Computes which Kafka partition an event belongs in: the one that Kafka's default partitioner chooses for its key,
//! the id of the post or other subject.

/// Returns the partition that Kafka's default partitioner chooses for `key`: murmur2, with the sign bit cleared.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// Returns the 32-bit MurmurHash2 of `key`, with the seed of Kafka's Java client.
pub(crate) fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let (words, rest) = key.as_chunks::<4>();
    let mut hash = words.iter().fold(SEED ^ len, |hash, word| {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M)
    });
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that Kafka publishes for its Java partitioner.
    #[test]
    fn murmur2_is_kafkas() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }
}
