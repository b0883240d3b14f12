//! The short form of what a deployment has to survive, with real processes and the operators' command.

use std::path::Path;
use std::time::Duration;

use tally_e2e::lifecycle::{lose_checkpoints, lose_counts, restore};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tally-e2e"))
}

fn told(report: anyhow::Result<String>) {
    match report {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn tables_restored_to_a_moment_are_exact_again() {
    told(restore(program(), None, 1, Duration::from_secs(5)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn nothing_starts_over_lost_checkpoints_and_a_recount_makes_counts_exact_again() {
    told(lose_checkpoints(program(), None, 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn lost_counts_are_exact_again_without_a_restart() {
    told(lose_counts(program(), None, 1, 1_000).await);
}
