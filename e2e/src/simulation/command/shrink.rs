//! Makes a schedule that broke a law smaller: fewer events, fewer kinds of faults, as long as some law still breaks.

use anyhow::Context;

use super::super::outcome::Outcome;
use super::super::schedule::Order;
use super::line;
use super::pool::Pool;

/// Lines of the trace that are printed.
const LINES: usize = 60;

/// Prints the smallest schedule found that still breaks a law, how to run it, and the end of its trace.
pub(super) fn shrink(pool: &Pool, mut order: Order, first: &Outcome) -> anyhow::Result<()> {
    let mut last = first.clone();
    while order.events > 40 {
        let smaller = Order { events: order.events / 2, ..order.clone() };
        let outcome = pool.one(&smaller)?;
        if outcome.broken.is_none() {
            break;
        }
        (order, last) = (smaller, outcome);
    }
    for kind in first.faults.keys() {
        let mut smaller = order.clone();
        smaller.without.insert(kind.clone());
        let outcome = pool.one(&smaller)?;
        if outcome.broken.is_some() {
            (order, last) = (smaller, outcome);
        }
    }
    let outcome = pool.one(&Order { lines: true, ..order.clone() })?;
    let left: Vec<&String> = last.faults.keys().collect();
    let without: Vec<String> = order.without.iter().cloned().collect();
    line(&format!(
        "smallest: schedule --seed {} --events {} --without {}",
        order.seed,
        order.events,
        without.join(",")
    ))?;
    line(&format!("faults left: {left:?}"))?;
    line(outcome.broken.as_deref().context("a schedule did not repeat itself")?)?;
    outcome.lines.iter().rev().take(LINES).rev().try_for_each(|text| line(text))
}
