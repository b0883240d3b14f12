//! Which slot of a cluster a key belongs to: commands of one slot may share a pipeline.

use crc16::{State, XMODEM};

/// The slot of `key`: CRC-16 (XMODEM) of its hash tag, or of all of it, modulo 16384.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % 16_384
}

fn crc16(bytes: &[u8]) -> u16 {
    State::<XMODEM>::calculate(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384, "an empty tag is none");
        assert_eq!(slot("foo{{bar}}zap"), crc16(b"{bar") % 16_384);
        assert_eq!(slot("foo{bar"), crc16(b"foo{bar") % 16_384);
    }
}
