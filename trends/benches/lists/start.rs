//! A start that reads sums from a disk beside one that reads the log: from the first question to the first lists.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tally_core::fence::{Log, Offset, TopicId};
use tally_core::ledger::Change;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_trends::partition::{Effect, Input, Setup};
use tally_trends::saved::{Disk, length_of};
use tally_trends::{BoardRules, Partition, Standing, Window, Writer};

use crate::load::Load;
use crate::{BEGAN, alternate, message, now, rate, say, size, windows};

/// Changes a second of the log: 800,000 in a quarter of an hour.
const A_SECOND: u64 = 889;

struct Stage {
    windows: Vec<Window>,
    records: Arc<Records>,
    log: Log,
    now: UnixMillis,
}

impl Stage {
    fn new(keys: usize, changes: usize) -> Self {
        let mut records = Records::default();
        let all: Vec<Change> = Load::zipf(keys, changes)
            .changes()
            .zip(0..)
            .map(|(change, nth)| Change { second: BEGAN + 1 + nth / A_SECOND, ..change })
            .collect();
        for (some, nth) in all.chunks(1_000).zip(0..) {
            let at = UnixMillis(some[0].second * 1000);
            records.push(Offset(nth), at, None, Some(message(some).as_bytes()), []);
        }
        let log = Log { topic: TopicId("changes".into()), start: Offset(0), end: Offset(records.len() as u64) };
        let now = UnixMillis((BEGAN + changes as u64 / A_SECOND + 60) * 1000);
        Self { windows: windows(&["1h", "24h"]), records: Arc::new(records), log, now }
    }

    /// Until it has lists to publish.
    fn start(&self, disk: Option<&Disk>) -> Duration {
        let began = now();
        let mut machine = Partition::new(Setup {
            partition: 0,
            of: 1,
            writer: Writer("bench".into()),
            windows: self.windows.clone(),
            boards: BoardRules::default(),
            regions: 1,
            keys: usize::MAX,
        });
        if let Some(disk) = disk {
            machine = machine.keeping(disk.saved(), length_of(&self.windows));
        }
        let (as_of, since) = (Some(self.now), Some(UnixMillis(0)));
        let mut inputs = vec![Input::Standing(Standing { as_of, since, lapses: vec![].into() })];
        loop {
            let mut effects = Vec::new();
            let input = inputs.pop().unwrap_or_else(|| Input::Records(Arc::clone(&self.records)));
            machine.step(input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Look(look) => inputs.push(Input::Log(look, self.log.clone())),
                    Effect::Find(_) => inputs.push(Input::Found(Some(Offset(0)))),
                    Effect::Load(about) => {
                        inputs.push(Input::Loaded(disk.and_then(|disk| disk.stretch(&about)).map(Arc::new)));
                    }
                    Effect::Open(_) => inputs.push(Input::Opened),
                    Effect::Keep(keep) => disk.expect("it has one").keep(&keep).expect("the disk takes it"),
                    Effect::Publish(publication) => {
                        black_box(publication);
                        return began.elapsed();
                    }
                    Effect::Halt(alarm) => panic!("{alarm:?}"),
                    Effect::Tell(_) => {}
                }
            }
        }
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("it is there");
    files.map(|file| file.and_then(|file| file.metadata()).expect("it is a file").len()).sum()
}

pub(crate) fn run() {
    let (keys, changes) = (size("TALLY_BENCH_KEYS", 10_000_000), size("TALLY_BENCH_CHANGES", 3_300_000));
    println!(
        "a start from a disk beside one from the log: {keys} keys, {changes} changes, {A_SECOND} a second, Zipf 1, \
         windows 1h and 24h"
    );
    let (stage, root) = (Stage::new(keys, changes), std::env::temp_dir().join(format!("lists-{}", std::process::id())));
    let disk = Disk::new(&root, "changes", 0);
    // Writes what the others read.
    stage.start(Some(&disk));
    let stretches = disk.saved().map_or(0, |saved| saved.stretches.len());
    let bytes = bytes_in(&root.join("changes-0"));
    let mut anew = || {
        let folder = root.join("anew");
        let took = stage.start(Some(&Disk::new(&folder, "changes", 0)));
        std::fs::remove_dir_all(folder).expect("it is there");
        took
    };
    let [log, keeping, sums] = alternate([&mut || stage.start(None), &mut anew, &mut || stage.start(Some(&disk))]);
    say("from the log", rate(changes, log));
    say("from the log, and kept meanwhile", rate(changes, keeping));
    say("from the disk, and the log behind it", rate(changes, sums));
    println!(
        "  {:.1} times as fast; {stretches} stretches, {:.1} bytes a change",
        log.as_secs_f64() / sums.as_secs_f64(),
        bytes as f64 / changes as f64
    );
    std::fs::remove_dir_all(root).expect("it is there");
}
