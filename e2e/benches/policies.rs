//! Compares the policies for sums (consumer/README.md): `cargo bench -p tally-e2e --bench policies` measures all of them in
//! one run. Time is paused and requests take as long as those of the real store, so the figures are the same on every machine,
//! except for the random latencies of tasks that wake at the same time.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use tally_core::spread::SumPolicy;
use tally_e2e::policies::{HEAD, Scenario, measure};

/// Views per row on one partition, at 10,000 views per second.
const FLOOR: f64 = 100.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tokio::time::pause();
    println!("{HEAD}");
    for (views, likes) in [(10_000, 0), (40_000, 0), (40_000, 4_000)] {
        for policy in SumPolicy::ALL {
            let figures = measure(Scenario { policy, views, likes }).await?;
            println!("{figures}");
            assert!(
                figures.width > 1 || views > 10_000 || figures.events_a_row >= FLOOR,
                "at least {FLOOR} events a row"
            );
        }
    }
    Ok(())
}
