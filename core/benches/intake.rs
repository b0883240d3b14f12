//! Decode and collapse, beside a bare serde_json + foldhash loop over the same events in the same run.
//!
//! `cargo bench -p tally-core`: the last lines are the ratio, paired round by round so that a noisy machine's drift
//! cancels, and the absolute rate.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_types, reason = "a bench measures time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tally_core::Map;
use tally_core::batch::{Batch, BatchLimits, Taken};
use tally_core::definitions::Definitions;
use tally_core::event::decode_value;
use tally_core::fence::Offset;
use tally_core::time::UnixMillis;

const EVENTS: usize = 100_000;
const ROUNDS: usize = 31;
/// What the whole intake has to keep of the bare loop's rate.
const FLOOR: f64 = 0.7;

fn main() {
    let events = events();
    let bytes: usize = events.iter().map(Vec::len).sum();
    println!("{EVENTS} events of {} bytes on average, {ROUNDS} rounds of both loops in turn", bytes / EVENTS);
    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    for round in 0..=ROUNDS {
        let bare = timed(|| bare_loop(&events));
        let ours = timed(|| decode_and_collapse(&events));
        assert_eq!(bare.0, ours.0, "both loops keep the same rows");
        if round > 0 {
            ratios.push(bare.1.as_secs_f64() / ours.1.as_secs_f64());
            rates.push(EVENTS as f64 / ours.1.as_secs_f64());
        }
    }
    let (ratio, rate) = (median(&mut ratios), median(&mut rates));
    println!("decode + collapse: {:.2} million events/s", rate / 1e6);
    println!("of the bare loop:  {ratio:.2} (at least {FLOOR})");
    if ratio < FLOOR && !cfg!(debug_assertions) {
        std::process::exit(1);
    }
}

/// What a first version would do: parse into borrowed fields, keep the last action per (post, user), 99 at a time.
fn bare_loop(events: &[Vec<u8>]) -> usize {
    #[derive(Deserialize)]
    struct Bare<'a> {
        post_id: &'a str,
        user_id: &'a str,
        action: &'a str,
        ts: u64,
    }
    let mut rows: Map<(String, String), (bool, u64)> = Map::default();
    let mut kept = 0;
    for value in events {
        let event: Bare<'_> = serde_json::from_slice(value).expect("generated events are valid");
        rows.insert((event.post_id.to_owned(), event.user_id.to_owned()), (event.action == "like", event.ts));
        if rows.len() == BatchLimits::MAX_ROWS {
            kept += black_box(&rows).len();
            rows.clear();
        }
    }
    kept + rows.len()
}

fn decode_and_collapse(events: &[Vec<u8>]) -> usize {
    let limits = BatchLimits { rows: BatchLimits::MAX_ROWS, bytes: usize::MAX, age: Duration::MAX };
    let mut batch = Batch::new(limits, Offset(0));
    let likes = Definitions::likes_alone();
    let mut kept = 0;
    for (offset, value) in events.iter().enumerate() {
        let event = decode_value(Some(value), UnixMillis(0), &likes).expect("generated events are valid");
        let taken = batch.accept(Offset(offset as u64), &event, value.len(), Duration::ZERO);
        assert_eq!(taken, Taken::Taken);
        if batch.due(Duration::ZERO).is_some() {
            kept += flush(&mut batch);
        }
    }
    kept + flush(&mut batch)
}

fn flush(batch: &mut Batch) -> usize {
    let sealed = batch.seal().expect("nothing was rejected");
    black_box(sealed.changes()).len()
}

/// 120 bytes each; one in four comes back to a row among the last hundred, as a like and its unlike do.
fn events() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..EVENTS as u64)
        .map(|n| {
            let who = if draw(4) == 0 { n.saturating_sub(draw(100)) } else { n };
            let action = if draw(10) < 3 { "unlike" } else { "like" };
            let (post, ts) = (draw(3) + who / 3, 1_700_000_000_000 + n);
            format!(
                r#"{{"post_id":"post-{post:08}","user_id":"user-{who:010}","action":"{action}","ts":{ts},"event_id":"e-{n:012}"}}"#
            )
            .into_bytes()
        })
        .collect()
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
