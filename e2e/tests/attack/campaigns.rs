//! The short form of the attack: every campaign once, with real processes.

use std::path::Path;

use tally_e2e::attack::{Campaign, Ground, Under, fight};

async fn short(campaigns: &[Campaign]) {
    let program = Path::new(env!("CARGO_BIN_EXE_tally-e2e"));
    let campaigns: Vec<_> = campaigns.iter().map(|campaign| (*campaign, campaign.short())).collect();
    match fight(program, Ground { seed: 1, broker: None }, &campaigns, Under::default()).await {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error:#}"),
    }
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
