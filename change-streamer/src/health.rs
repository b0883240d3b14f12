//! Says how well the stream is followed: in the log, in the metrics and in readiness.

use tally_core::shards::{Event, Health, Trouble};
use tally_service::Readiness;

use crate::metrics;

/// The condition that every stream shard is closed, read, or waiting for its parent.
const READINESS: &str = "stream_shards";

/// What a look came to.
pub(crate) fn report(Health { places, trouble }: &Health, readiness: &Readiness) {
    if let Some(places) = places {
        metrics::places(places);
        metrics::followed(trouble.is_none());
    }
    match trouble {
        None => readiness.ready(READINESS),
        Some(trouble) => {
            if !matches!(trouble, Trouble::Unknown(_)) {
                tracing::error!(%trouble, "the stream is not followed as it should be");
            }
            readiness.not_ready(READINESS, trouble.to_string());
        }
    }
}

/// Something for the log.
pub(crate) fn tell(event: &Event) {
    match event {
        Event::NewStream(label) => tracing::warn!(to = %label, "the table has another stream now"),
        Event::Overlooked(shard) => {
            tracing::warn!(%shard, "the service lists a stream shard no more that can still be read");
        }
        Event::Childless(shard) => tracing::warn!(%shard, "the stream shard has ended and none continues it"),
    }
}
