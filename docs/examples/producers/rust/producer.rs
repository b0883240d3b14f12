//! Example to copy: a producer in Rust. It sends made-up likes and unlikes to Tally's Kafka topic, with the key,
//! partition and order that docs/producers.md asks for.
//!
//! Run it as `producer BROKERS TOPIC COUNT`. Tried with rdkafka 0.39.

use std::env::args;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (brokers, topic, count) = (arg(1)?, arg(2)?, arg(3)?.parse::<u64>()?);
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("client.id", "likes-rust")
        .set("acks", "all")
        .set("enable.idempotence", "true") // retries keep the order
        .set("partitioner", "murmur2_random") // the default is CRC32, which sends a key elsewhere
        .create()?;
    // Up to 1,000 under way. They are begun in order, and the client keeps it.
    let sent = stream::iter(0..count).map(|n| {
        let (producer, topic) = (&producer, &topic);
        async move {
            let post = format!("post-ü-{}", n % 97);
            let action = if n / 211 % 3 == 1 { "unlike" } else { "like" };
            let ts = 1_700_000_000_000 + n;
            let event = json!({"post_id": post, "user_id": format!("user-{}", n % 211), "action": action, "ts": ts});
            let value = event.to_string();
            let record = FutureRecord::to(topic).key(&post).payload(&value);
            producer.send(record, Duration::from_secs(30)).await.map(drop).map_err(|(error, _)| error)
        }
    });
    sent.buffered(1_000).try_collect::<()>().await?;
    Ok(())
}

fn arg(n: usize) -> anyhow::Result<String> {
    args().nth(n).ok_or_else(|| anyhow::anyhow!("usage: producer BROKERS TOPIC COUNT"))
}
