//! Tests that counts survive attacks on real processes: runs each campaign (such as killed processes or a bad network)
//! and each rare event of a deployment (such as a restore) once, in a short form.

use std::path::Path;
use std::time::Duration;

use tally_e2e::attack::{Campaign, Ground, Under, fight};
use tally_e2e::lifecycle::{What, live};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-e2e");
const GROUND: Ground = Ground { seed: 1, broker: None };

fn held(report: anyhow::Result<String>) {
    match report {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error:#}"),
    }
}

async fn short(campaigns: &[Campaign]) {
    let campaigns: Vec<_> = campaigns.iter().map(|campaign| (*campaign, campaign.short())).collect();
    held(fight(Path::new(PROGRAM), GROUND, &campaigns, Under::default()).await);
}

async fn survives(what: What) {
    held(live(Path::new(PROGRAM), GROUND, what).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_after_processes_are_killed_frozen_or_replaced() {
    short(&[Campaign::Kills, Campaign::Zombies, Campaign::Rolling]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn no_answer_is_wrongly_called_exact_around_a_loss_of_stream() {
    short(&[Campaign::Losses]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: needs redis-server, and kills it"]
async fn no_answer_is_wrongly_called_exact_when_the_cache_loses_its_last_writes() {
    short(&[Campaign::Failovers]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_after_network_faults() {
    short(&[Campaign::Network]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_after_outages_of_each_dependency() {
    short(&[Campaign::Outages]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_after_all_processes_stop_while_a_dependency_is_silent() {
    short(&[Campaign::Departures]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: needs redis-server"]
async fn counts_changed_by_hand_are_corrected_and_no_answer_shows_the_old_value_afterwards() {
    short(&[Campaign::Drift]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn two_regions_answer_the_sum_of_both_and_call_nothing_exact_that_is_not() {
    short(&[Campaign::Regions]).await;
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
