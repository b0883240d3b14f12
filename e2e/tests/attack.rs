//! The attack's short form: every campaign once, with real processes.

#![cfg(test)]

use std::path::Path;
use std::time::Duration;

use tally_e2e::attack::{Campaign, Extent, fight};

/// Whatever else a machine does meanwhile: how fast a recovery is, is for the long forms to say.
const RECOVERY: Duration = Duration::from_secs(300);

async fn short(campaigns: &[Campaign]) {
    let program = Path::new(env!("CARGO_BIN_EXE_tally-e2e"));
    let form = |campaign: &Campaign| (*campaign, Extent { recovery: RECOVERY, ..campaign.short() });
    let campaigns: Vec<_> = campaigns.iter().map(form).collect();
    match fight(program, None, 1, &campaigns).await {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_exact_whatever_is_killed_put_to_sleep_or_replaced() {
    short(&[Campaign::Kills, Campaign::Zombies, Campaign::Rolling]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_exact_whatever_the_network_does() {
    short(&[Campaign::Network, Campaign::Outages, Campaign::Departures]).await;
}
