//! The attack's short form: every campaign once, with real processes.

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
async fn counts_are_exact_whatever_is_killed_put_to_sleep_or_replaced() {
    short(&[Campaign::Kills, Campaign::Zombies, Campaign::Rolling]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn no_answer_says_exact_and_is_not_around_a_loss_of_stream() {
    short(&[Campaign::Losses]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: needs redis-server, and kills it"]
async fn no_answer_says_exact_and_is_not_when_the_cache_forgets_its_last_writes() {
    short(&[Campaign::Failovers]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_whatever_the_network_does() {
    short(&[Campaign::Network]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_whatever_dependency_is_away() {
    short(&[Campaign::Outages]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn counts_are_exact_after_all_were_stopped_while_a_dependency_was_silent() {
    short(&[Campaign::Departures]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: needs redis-server"]
async fn counts_that_were_changed_by_hand_are_corrected_and_told_as_they_are_from_then_on() {
    short(&[Campaign::Drift]).await;
}
