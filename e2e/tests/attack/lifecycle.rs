//! The short form of the lifecycle events, with real processes and the operators' command.

use std::path::Path;
use std::time::Duration;

use tally_e2e::attack::Ground;
use tally_e2e::lifecycle::{What, live};

async fn survives(what: What) {
    let program = Path::new(env!("CARGO_BIN_EXE_tally-e2e"));
    match live(program, Ground { seed: 1, broker: None }, what).await {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn tables_restored_to_a_point_in_time_become_exact_again() {
    survives(What::Restore { lose: Duration::from_secs(5) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn nothing_starts_over_lost_checkpoints_and_a_recount_makes_counts_exact_again() {
    survives(What::LoseCheckpoints).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn lost_counts_become_exact_again_without_a_restart() {
    survives(What::LoseCounts { posts: 1_000 }).await;
}
