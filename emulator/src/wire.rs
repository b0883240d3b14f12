//! The bytes on the wire below the operations: a JSON writer. The shapes of requests are the operations'.

pub(crate) mod json;
