//! The bytes on the wire below the operations: a JSON writer, the checksum header, ids; leaves request shapes to the operations.

pub(crate) mod crc32;
pub(crate) mod json;
