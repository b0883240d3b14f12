//! Change records folded and applied a second: the streamer, and beside it the bare loop of GetRecords and UpdateItem
//! that people write first, over the same emulator in the same process. The ratio is the figure; the emulator and the
//! SDK take most of the time of both.
//!
//! ```text
//! cargo bench -p tally-change-streamer --bench fold        # TALLY_BENCH_RECORDS=20000
//! ```

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

#[expect(dead_code, clippy::unwrap_used, reason = "the tests' world, of which a benchmark needs a part")]
#[path = "../tests/streamer/world.rs"]
mod world;

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_change_streamer::Rules;
use tally_core::event::Action;
use tally_core::ids::{Sequence, StreamShardId};
use tally_core::ports::Position;
use tally_core::tally::read;
use tally_emulator::{Config as EmulatorConfig, Emulator};
use tokio::time::Instant;

use crate::world::{World, Writer, post, sdk, user};

/// Open stream shards.
const SHARDS: u32 = 4;

#[derive(Clone, Copy)]
enum Shape {
    /// All records of one post.
    Hot,
    /// Every record another post's.
    Tail,
}

fn main() {
    let records = std::env::var("TALLY_BENCH_RECORDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    println!("{records} change records over {SHARDS} stream shards, records/s applied");
    for (name, shape) in [("hot post", Shape::Hot), ("long tail", Shape::Tail)] {
        let bare = runtime.block_on(bare(shape, records));
        let streamer = runtime.block_on(streamer(shape, records));
        println!("{name:>10}: bare loop {bare:>8.0}   streamer {streamer:>8.0}   ratio {:.1}", streamer / bare);
    }
}

/// A table whose stream holds the records, and the last record of each stream shard.
async fn written(shape: Shape, records: u64) -> (World, Emulator, Vec<(StreamShardId, Sequence)>) {
    let config = EmulatorConfig { shards: SHARDS, read_lag: Duration::ZERO, ..EmulatorConfig::default() };
    let (world, emulator) = World::emulated(config).await;
    let mut writer = Writer::new(&world, 1).await;
    for n in 0..records {
        let post = post(if matches!(shape, Shape::Hot) { 0 } else { n });
        writer.set(post, user(n), Action::Like).await;
    }
    writer.flush().await;
    let (label, stream) = (world.label().await, &world.ports.stream);
    let mut last = Vec::new();
    for shard in stream.shards(&label).await.expect("the emulator lists") {
        let mut iterator = stream.iterator(&label, &shard.id, Position::Oldest).await.expect("the shard is there");
        let mut seen = None;
        loop {
            let page = stream.records(&iterator, 1000).await.expect("the emulator reads");
            let Some(raw) = page.records.last() else { break };
            seen = read(raw).map(|record| record.sequence);
            iterator = page.next.expect("the shard is open");
        }
        last.extend(seen.map(|seen| (shard.id, seen)));
    }
    (world, emulator, last)
}

#[expect(clippy::cast_precision_loss, reason = "a benchmark has far fewer than 2^52 records")]
fn rate(records: u64, began: Instant) -> f64 {
    records as f64 / began.elapsed().as_secs_f64()
}

async fn streamer(shape: Shape, records: u64) -> f64 {
    let (world, _emulator, last) = written(shape, records).await;
    let began = Instant::now();
    let running = world.start("bench", Rules::default());
    loop {
        let states = world.states().await;
        let is_through = |(id, sequence): &(StreamShardId, Sequence)| {
            states.iter().any(|state| state.checkpoint.id == *id && state.checkpoint.sequence >= Some(*sequence))
        };
        if last.iter().all(is_through) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = rate(records, began);
    let counted = match shape {
        Shape::Hot => world.counter(&post(0)).await.likes,
        Shape::Tail => {
            i64::try_from(records).expect("a benchmark has few records") * world.counter(&post(7)).await.likes
        }
    };
    assert_eq!(u64::try_from(counted), Ok(records), "the benchmark counts right");
    running.stop(Duration::from_secs(20)).await;
    rate
}

/// One task a shard; a page, then one update a record, which counts a record twice after any repetition.
async fn bare(shape: Shape, records: u64) -> f64 {
    let (world, emulator, last) = written(shape, records).await;
    let (sdk, label) = (sdk(&emulator), world.label().await);
    let began = Instant::now();
    let shards = last.into_iter().map(|(id, last)| {
        let (sdk, stream, label) = (sdk.clone(), world.ports.stream.clone(), label.clone());
        async move {
            let mut iterator = stream.iterator(&label, &id, Position::Oldest).await.expect("the shard is there");
            loop {
                let page = stream.records(&iterator, 1000).await.expect("the emulator reads");
                for raw in &page.records {
                    let post = raw.pk.as_deref().and_then(|pk| pk.rsplit_once('#')).map_or("", |(post, _)| post);
                    let update = sdk.update_item().table_name("like_counts");
                    let update = update.key("post_id", AttributeValue::S(post.to_owned()));
                    let update = update.update_expression("ADD likes :d");
                    let one = AttributeValue::N("1".to_owned());
                    update.expression_attribute_values(":d", one).send().await.expect("the emulator writes");
                    if raw.sequence.parse() == Ok(last) {
                        return;
                    }
                }
                iterator = page.next.expect("the shard is open");
            }
        }
    });
    futures_util::future::join_all(shards).await;
    rate(records, began)
}
