//! Benchmarks how fast a process of `tally-trends` starts: it reads the log `changes` again, from its bytes to the
//! first lists of what is trending.

use std::future::ready;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tally_core::changes::{Body, DeploymentId, Entry, Message, Opened, Opening, Section};
use tally_core::ids::StreamShard;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, TopicId};
use tally_trends::partition::{Looked, Setup};
use tally_trends::{BoardRules, Partition, Rules, Writer};

use crate::load::Load;
use crate::{BEGAN, alternate, now, print_rate, rate, size, windows};

/// Changes per second of one partition: 58,000 per second in 64 partitions.
const A_SECOND: u64 = 900;

/// Records that a client fetches at once.
const AT_ONCE: usize = 100;

struct Stage {
    deployment: DeploymentId,
    records: Vec<Arc<Records>>,
    log: Log,
}

impl Stage {
    /// Creates a log with ten messages per second.
    fn new(keys: usize, changes: usize) -> Self {
        let (deployment, shard) = (DeploymentId("bench".into()), StreamShard::from("label/shard-1"));
        let dated = |(change, nth): (Entry, u64)| Entry { second: BEGAN + 1 + nth / A_SECOND, ..change };
        let all: Vec<Entry> = Load::zipf(keys, changes).changes().zip(0..).map(dated).collect();
        let shards = vec![Opening { shard: shard.clone(), at: None, fed: UnixMillis(BEGAN * 1000) }];
        let opened =
            Message { read: UnixMillis(BEGAN * 1000), body: Body::Opened(Opened { shards, ended: Vec::new() }) };
        let (mut messages, mut back) = (vec![opened], None);
        for entries in all.chunks(90) {
            let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
            let (read, to) = (UnixMillis(first.second * 1000), Some(last.sequence));
            let section = Section { shard: shard.clone(), back, to, fed: Some(read), entries: entries.to_vec() };
            messages.push(Message { read, body: Body::Sections { sections: vec![section], losses: Vec::new() } });
            back = to;
        }
        let mut records = Vec::new();
        for (some, nth) in messages.chunks(AT_ONCE).zip(0..) {
            let mut batch = Records::default();
            for (message, of) in some.iter().zip(0..) {
                let offset = Offset(nth * AT_ONCE as u64 + of);
                batch.push(offset, message.read, None, Some(&message.write(&deployment)), []);
            }
            records.push(Arc::new(batch));
        }
        let log = Log { topic: TopicId("changes".into()), start: Offset(0), end: Offset(messages.len() as u64) };
        Self { deployment, records, log }
    }

    /// Runs until there are lists to publish.
    fn start(&self) -> Duration {
        let began = now();
        let mut machine = Partition::new(Setup {
            deployment: self.deployment.clone(),
            partition: 0,
            of: 1,
            writer: Writer("bench".into()),
            rules: Rules {
                windows: windows(&["1h", "24h"]),
                boards: BoardRules::default(),
                regions: 1,
                keys: usize::MAX,
            },
        });
        let looked = Looked { log: self.log.clone(), generation: 1, position: None };
        let find = |_| ready(Ok(None));
        let begun = looked.begin(None, &windows(&["1h", "24h"]), find).now_or_never();
        machine.begin(begun.expect("nothing is waited for").expect("nothing fails").expect("the log is whole"));
        for records in &self.records {
            machine.read(records).expect("every record is a message");
        }
        black_box(machine.publication().expect("something to publish"));
        began.elapsed()
    }
}

pub(crate) fn run() {
    let (keys, changes) = (size("TALLY_BENCH_KEYS", 1_000_000), size("TALLY_BENCH_CHANGES", 3_000_000));
    println!("a start: {keys} keys, {changes} changes, {A_SECOND} a second, Zipf 1, windows 1h and 24h");
    let stage = Stage::new(keys, changes);
    let [log] = alternate([&mut || stage.start()]);
    let a_second = rate(changes, log);
    print_rate("from the log to the first lists", a_second);
    println!(
        "  a day of {A_SECOND} changes/s takes {:.0} s of a core; aim 500,000 changes/s",
        A_SECOND as f64 * 86_400.0 / a_second
    );
}
