//! Benchmarks the fold that adds up changes to lists of what is trending, against a map with a heap and against Redis,
//! and measures the memory that a key (a post or hashtag in one counter and region) takes.
//! `cargo bench -p tally-trends --bench lists -- fold|start|redis=PORT`; `-- limit` takes some minutes and 1.5 GB.
//!
//! Sizes: `TALLY_BENCH_KEYS` and `TALLY_BENCH_CHANGES`.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tally_core::Map;
use tally_core::ids::{CounterName, PostId};
use tally_service::Chance;
use tally_trends::{BoardRules, Fold, Place, Window};

#[path = "lists/load.rs"]
mod load;
#[path = "lists/start.rs"]
mod start;

use load::{Load, change, resident, zipf};

/// The second at which loads begin, on the edge of every bucket.
const BEGAN: u64 = 1_699_920_000;

/// Changes per second of the loads' own time.
const A_SECOND: u64 = 10_000;

const LIKES: Place = Place { counter: CounterName::LIKES, region: None };

fn size(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn windows(texts: &[&str]) -> Vec<Window> {
    texts.iter().map(|text| text.parse().expect("it is a window")).collect()
}

#[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Runs each variant three times in turn, and returns the median time of each.
fn alternate<const N: usize>(mut ways: [&mut dyn FnMut() -> Duration; N]) -> [Duration; N] {
    let mut times = [[Duration::ZERO; 3]; N];
    for round in 0..3 {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times[round] = way();
        }
    }
    times.map(|mut of| {
        of.sort_unstable();
        of[1]
    })
}

fn rate(changes: usize, time: Duration) -> f64 {
    changes as f64 / time.as_secs_f64()
}

fn print_rate(what: &str, rate: f64) {
    println!("  {what:<44} {:>10.0} changes/s", rate);
}

/// Folds the whole load, so many seconds later than it states, and makes a list for each second.
fn folded(mut fold: Fold, load: &Load, later: u64) -> Duration {
    let began = now();
    for (nth, mut change) in load.changes().enumerate() {
        change.second += later;
        fold.take(&change);
        if (nth as u64 + 1).is_multiple_of(A_SECOND) {
            fold.advance(change.second);
            black_box(fold.list(&LIKES, 0));
        }
    }
    began.elapsed()
}

/// A fold of a day, before the load.
fn empty() -> Fold {
    Fold::new(&windows(&["24h"]), BoardRules::default(), BEGAN)
}

/// Runs the same load through a map from ids to sums and a heap: no windows, no timestamps, no exactness.
fn bare(load: &Load) -> Duration {
    let began = now();
    let mut sums: Map<PostId, i64> = Map::default();
    let mut heap: BTreeSet<(i64, PostId)> = BTreeSet::new();
    for (nth, change) in load.changes().enumerate() {
        let (subject, gain) = (&change.key.counter.post, change.gain());
        let sum = sums.entry(subject.clone()).or_default();
        let before = *sum;
        *sum += gain;
        let least = heap.first().map_or(0, |(least, _)| *least);
        if heap.len() < 128 || *sum > least || before >= least {
            heap.remove(&(before, subject.clone()));
            heap.insert((*sum, subject.clone()));
            if heap.len() > 128 {
                heap.pop_first();
            }
        }
        if (nth as u64 + 1).is_multiple_of(A_SECOND) {
            black_box(heap.iter().rev().take(100).cloned().collect::<Vec<_>>());
        }
    }
    began.elapsed()
}

/// Only generates the load; subtract this from the other times.
fn alone(load: &Load) -> Duration {
    let began = now();
    for change in load.changes() {
        black_box(&change);
    }
    began.elapsed()
}

fn fold() {
    let (keys, changes) = (size("TALLY_BENCH_KEYS", 1_000_000), size("TALLY_BENCH_CHANGES", 3_000_000));
    println!(
        "the fold beside a hash map and a heap: {keys} keys, {changes} changes, Zipf 1, a list a second of {A_SECOND}"
    );
    let load = Load::zipf(keys, changes);
    let [load_alone, map, fold] =
        alternate([&mut || alone(&load), &mut || bare(&load), &mut || folded(empty(), &load, 0)]);
    print_rate("the load alone", rate(changes, load_alone));
    print_rate("hash map and heap, no window", rate(changes, map));
    print_rate("fold, one window", rate(changes, fold));
    println!("  ratio {:.2}, aim 0.40 or more", rate(changes, fold) / rate(changes, map));
}

/// A connection to Redis that pipelines commands.
struct Redis(TcpStream);

impl Redis {
    fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
        write!(out, "*{}\r\n", parts.len()).expect("memory takes all");
        for part in parts {
            write!(out, "${}\r\n", part.len()).expect("memory takes all");
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends `commands`, and a PING behind them whose answer shows that all are done.
    fn run(&mut self, mut commands: Vec<u8>) {
        let mark: &[u8] = b"all-of-it-is-done";
        Self::command(&mut commands, &[b"PING", mark]);
        self.0.write_all(&commands).expect("redis takes it");
        let (mut answers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let read = self.0.read(&mut buffer).expect("redis answers");
            assert!(read > 0, "redis has gone");
            answers.extend_from_slice(&buffer[..read]);
            if answers.ends_with(&[mark, b"\r\n"].concat()) {
                return;
            }
        }
    }

    fn empty(&mut self) {
        let mut out = Vec::new();
        Self::command(&mut out, &[b"FLUSHALL"]);
        self.run(out);
    }

    /// Sends one ZINCRBY per change, pipelined by 1000, and these commands each second.
    fn load(&mut self, load: &Load, key: &[u8], each_second: &[&[&[u8]]]) -> Duration {
        let (began, mut out) = (now(), Vec::new());
        for (nth, change) in load.changes().enumerate() {
            Self::command(&mut out, &[b"ZINCRBY", key, b"1", change.key.counter.post.as_bytes()]);
            let is_second = (nth as u64 + 1).is_multiple_of(A_SECOND);
            if is_second {
                each_second.iter().for_each(|command| Self::command(&mut out, command));
            }
            if is_second || (nth + 1).is_multiple_of(1_000) {
                self.run(std::mem::take(&mut out));
            }
        }
        self.run(out);
        began.elapsed()
    }

    /// Keeps one set of all sums, and reads it each second.
    fn sums(&mut self, load: &Load) -> Duration {
        self.empty();
        self.load(load, b"all", &[&[b"ZREVRANGE", b"all", b"0", b"99", b"WITHSCORES"]])
    }

    /// Keeps one set per minute for the last 60 minutes, and reads their union each second. The hour is loaded
    /// beforehand.
    fn buckets(&mut self, hour: &Load, load: &Load) -> Duration {
        self.empty();
        let keys: Vec<String> = (0..60).map(|minute| format!("minute-{minute}")).collect();
        let mut out = Vec::new();
        for (nth, change) in hour.changes().enumerate() {
            Self::command(&mut out, &[b"ZINCRBY", keys[nth % 60].as_bytes(), b"1", change.key.counter.post.as_bytes()]);
            if nth.is_multiple_of(1_000) {
                self.run(std::mem::take(&mut out));
            }
        }
        self.run(out);
        let mut union: Vec<&[u8]> = vec![b"ZUNIONSTORE", b"hour", b"60"];
        union.extend(keys.iter().map(|key| key.as_bytes()));
        self.load(load, b"minute-0", &[&union, &[b"ZREVRANGE", b"hour", b"0", b"99", b"WITHSCORES"]])
    }
}

/// Runs the same load through a fold that has the same hour.
fn folded_behind(hour: &Load, load: &Load) -> Duration {
    let mut fold = Fold::new(&windows(&["1h"]), BoardRules::default(), BEGAN + 3_600);
    for (nth, mut change) in hour.changes().enumerate() {
        change.second = BEGAN + 60 + nth as u64 % 60 * 58;
        fold.take(&change);
    }
    folded(fold, load, 3_600)
}

fn redis(port: u16) {
    let (keys, changes) = (size("TALLY_BENCH_KEYS", 1_000_000), size("TALLY_BENCH_CHANGES", 1_000_000));
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a redis is there");
    stream.set_nodelay(true).expect("a socket takes this");
    let mut redis = Redis(stream);
    println!("beside Redis on one core: {keys} keys, {changes} changes, Zipf 1, a list a second of {A_SECOND}");
    let load = Load::zipf(keys, changes);
    let [sums, fold] = alternate([&mut || redis.sums(&load), &mut || folded(empty(), &load, 0)]);
    print_rate("ZINCRBY, 1000 at once, and ZREVRANGE", rate(changes, sums));
    print_rate("fold, one window", rate(changes, fold));
    println!("  ratio {:.1}, aim 3 or more", sums.as_secs_f64() / fold.as_secs_f64());
    let (hour, few) = (&load, changes / 10);
    let load = Load::zipf(keys, few);
    println!("  over an hour that has had {changes} changes, {few} more:");
    let [buckets, fold] = alternate([&mut || redis.buckets(hour, &load), &mut || folded_behind(hour, &load)]);
    print_rate("60 sets and ZUNIONSTORE each second", rate(few, buckets));
    print_rate("fold, 1h", rate(few, fold));
    println!("  ratio {:.0}, aim 50 or more", buckets.as_secs_f64() / fold.as_secs_f64());
}

/// Measures the memory of ten million keys, each changed once and then by Zipf 1 for 2 hours, over 1h and 24h.
fn limit() {
    let (keys, changes) = (size("TALLY_BENCH_KEYS", 10_000_000), 2_000);
    let before = resident();
    let mut fold = Fold::new(&windows(&["1h", "24h"]), BoardRules::default(), BEGAN);
    for (nth, one) in Load::each(keys).changes().enumerate() {
        fold.take(&change(nth as u64, u32::try_from(nth).expect("not as many"), one.second, [0, 1]));
        if nth.is_multiple_of(1_000_000) {
            fold.advance(one.second);
        }
    }
    let (chance, mut greatest) = (Chance::seeded(3), 0);
    let began = BEGAN + keys as u64 / A_SECOND;
    for second in 1..=7_200 {
        for nth in 0..changes {
            let key = zipf(&chance, keys);
            fold.take(&change(second * changes + nth, key, began + second, [0, 1]));
        }
        fold.advance(began + second);
        if second.is_multiple_of(60) {
            greatest = greatest.max(resident() - before);
        }
    }
    let (held, now) = (fold.keys(), resident() - before);
    let each = now as f64 / held as f64;
    println!(
        "{held} keys after 2 h of {changes} changes/s: {} MiB, at most {} MiB on the way",
        now >> 20,
        greatest >> 20
    );
    println!("  {each:.1} B a key, at most {:.1}; aim 72 or less", greatest as f64 / held as f64);
    println!("  a hundred million keys on paper: {:.1} GiB", each * 1e8 / f64::from(1 << 30));
    assert!(each <= 72.0, "a key takes {each:.1} B");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    for part in &arguments {
        match (part.as_str(), part.strip_prefix("redis=").map(str::parse)) {
            ("fold", _) => fold(),
            ("start", _) => start::run(),
            ("limit", _) => limit(),
            (_, Some(Ok(port))) => redis(port),
            _ => panic!("fold, start, limit or redis=PORT, not {part}"),
        }
    }
}
