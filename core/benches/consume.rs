//! The machine of a partition, beside a bare loop of decode, batch and seal over the same records in the same run.
//!
//! `cargo bench -p tally-core --bench consume`: the last lines are the machine's rate and what it keeps of the bare loop's,
//! paired round by round so that a noisy machine's drift cancels.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_types, reason = "a bench measures time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_core::batch::{Batch, BatchLimits, Taken};
use tally_core::consume::{Consume, Effect, Input, LanePolicy, Setup};
use tally_core::definitions::Definitions;
use tally_core::event::{KeyScheme, Routing, decode};
use tally_core::fence::{Commit, Fence, Log, Offset, Partition, TopicId};
use tally_core::ids::{Lane, LaneCount, ShardCount};
use tally_core::ports::log::Records;
use tally_core::time::{Now, UnixMillis};

const EVENTS: usize = 100_000;
/// Records that are handed over at once.
const RUN: usize = 2_000;
const ROUNDS: usize = 31;
/// What the machine has to keep of the bare loop's rate.
const FLOOR: f64 = 0.9;

fn main() {
    let runs = runs();
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let bare = timed(|| bare_loop(&runs));
        let ours = timed(|| machine(&runs));
        assert_eq!(bare.0, ours.0, "both write the same rows");
        if round > 0 {
            ratios.push(bare.1.as_secs_f64() / ours.1.as_secs_f64());
            rates.push(EVENTS as f64 / ours.1.as_secs_f64());
        }
    }
    let (ratio, rate) = (median(&mut ratios), median(&mut rates));
    println!("machine:          {:.2} million records/s", rate / 1e6);
    println!("of the bare loop: {ratio:.2} (at least {FLOOR})");
    if ratio < FLOOR && !cfg!(debug_assertions) {
        std::process::exit(1);
    }
}

fn limits() -> BatchLimits {
    BatchLimits { rows: BatchLimits::MAX_ROWS, bytes: usize::MAX, age: Duration::MAX }
}

/// Decodes and collapses each run, and seals a batch whenever it is due.
fn bare_loop(runs: &[Arc<Records>]) -> usize {
    let routing = Routing { scheme: KeyScheme::Post, shards: ShardCount::DEFAULT, partitions: 1 };
    let likes = Definitions::likes_alone();
    let mut batch = Batch::new(limits(), Offset(0));
    let mut rows = 0;
    let mut seal = |batch: &mut Batch| {
        let sealed = batch.seal().expect("nothing was rejected");
        rows += black_box(sealed.changes()).len();
    };
    for record in runs.iter().flat_map(|run| run.iter()) {
        if batch.due(Duration::ZERO).is_some() {
            seal(&mut batch);
        }
        let event = decode(record, &likes).expect("generated events are valid");
        let taken = batch.accept(record.offset, &event, record.weight(), Duration::ZERO);
        assert!(taken == Taken::Taken && routing.fits(&event, 0));
    }
    seal(&mut batch);
    rows
}

/// The machine with a store that takes everything at once.
fn machine(runs: &[Arc<Records>]) -> usize {
    let partition = Partition { topic: "likes".into(), index: 0 };
    let setup = Setup {
        partition,
        limits: limits(),
        key: KeyScheme::Post,
        shards: ShardCount::DEFAULT,
        lanes: LanePolicy::Pinned(LaneCount::ONE),
    };
    let (mut machine, mut effects, mut rows) = (Consume::new(setup), Vec::new(), 0);
    let topic = TopicId("id".into());
    let fence = Fence::new(Offset(0), 0, topic.clone());
    let log = Log { topic, start: Offset(0), end: Offset(EVENTS as u64) };
    for input in [
        Input::Assigned,
        Input::Fence(Ok(Some(fence.into()))),
        Input::Log(Ok(log)),
        Input::Partitions(Ok(1)),
        Input::Started(Ok(())),
    ] {
        drive(&mut machine, input, &mut effects, &mut rows);
    }
    for run in runs {
        drive(&mut machine, Input::Records(Ok(Arc::clone(run))), &mut effects, &mut rows);
    }
    drive(&mut machine, Input::Leave(tally_core::consume::Leave::Stopping), &mut effects, &mut rows);
    rows
}

/// Tells the machine `input`, and answers every transaction at once.
fn drive(machine: &mut Consume, input: Input, effects: &mut Vec<Effect>, rows: &mut usize) {
    let mut next = Some(input);
    while let Some(input) = next.take() {
        machine.step(Now::default(), input, effects);
        for effect in effects.drain(..) {
            if let Effect::Commit(transaction) = effect {
                *rows += black_box(transaction.batch.changes()).len();
                next = Some(Input::Committed(Lane::FIRST, Commit::Done));
            }
        }
    }
}

/// Events of about 120 bytes; one in four comes back to a row among the last hundred, as a like and its unlike do.
fn runs() -> Vec<Arc<Records>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut value = move |n: u64| {
        let who = if draw(4) == 0 { n.saturating_sub(draw(100)) } else { n };
        let action = if draw(10) < 3 { "unlike" } else { "like" };
        let (post, ts) = (draw(3) + who / 3, 1_700_000_000_000 + n);
        format!(
            r#"{{"post_id":"post-{post:08}","user_id":"user-{who:010}","action":"{action}","ts":{ts},"event_id":"e-{n:012}"}}"#
        )
    };
    let offsets: Vec<u64> = (0..EVENTS as u64).collect();
    let run = |offsets: &[u64]| {
        let mut records = Records::default();
        for offset in offsets {
            records.push(Offset(*offset), UnixMillis(0), Some(b"post"), Some(value(*offset).as_bytes()), []);
        }
        Arc::new(records)
    };
    offsets.chunks(RUN).map(run).collect()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = run();
    (value, start.elapsed())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
