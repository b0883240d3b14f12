//! How the client of a member is set.

use rdkafka::ClientConfig;

use super::super::args::Settings;

pub(super) fn config(settings: &Settings, group: &str) -> ClientConfig {
    let mut config = settings.client.clone();
    config
        .set("group.id", group)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        // As short as brokers allow by default: only then does another member read on where one died. A slow member that is
        // taken for dead costs a rebalance, and no row.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "1000")
        // A broker answers as soon as it has records. The one inside this process does not, and waits this long first.
        .set("fetch.wait.max.ms", "50")
        // Beside the bounded queue of a partition, librdkafka asks for more of it while it holds less than this...
        .set("queued.max.messages.kbytes", "2048")
        // Partitions that are added are read within this, and not after minutes.
        .set("topic.metadata.refresh.interval.ms", "10000")
        // By default it looks again a second later, and a worker would have no records meanwhile.
        .set("fetch.queue.backoff.ms", "10")
        // ... and then for so much, counted as it lies in the log: compressed, so it may be several times as large here.
        .set("fetch.message.max.bytes", "131072");
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_member_leaves_the_group_after_six_seconds() {
        let config = config(&Settings::plaintext("127.0.0.1:1"), "readers");
        assert_eq!(config.get("session.timeout.ms"), Some("6000"));
    }
}
