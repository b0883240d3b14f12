//! `tally cost`: estimates what a deployment costs a month, by what a load needs (`parts`) and a price list (`prices`).

mod parts;
mod prices;

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use tally_service::Host;

use self::parts::{Load, Part};
use self::prices::Prices;
use crate::said::{Answer, Table};

/// How many days old prices may be before `--check` fails.
const DAYS: u64 = 180;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    load: Load,

    /// Another price list, of the same form as the one that is built in
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Exit with 1 if the prices are older than 180 days
    #[arg(long)]
    check: bool,
}

const LEFT_OUT: &str =
    "data between zones, logs, metrics, the network's own endpoints, what is trending, taxes and discounts";

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Answer> {
        let text = match &self.prices {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => prices::BUILT_IN.to_owned(),
        };
        let prices = Prices::read(&text).context("the price list cannot be read")?;
        let days_old = prices.days_old(Host::new("tally").clock().now())?;
        let too_old = self.check && days_old > DAYS;
        let (parts, besides) = (parts::monthly(&self.load, &prices), parts::besides(&self.load, &prices));
        let least: f64 = parts.iter().map(|part| part.least).sum();
        let most: f64 = parts.iter().map(|part| part.most).sum();
        let assumed = parts::assumed(&self.load);
        let mut table = listed(&format!("in month {}", self.load.months), &parts);
        table.row([&"in all", &parts::dollars(least, most), &"the least and the most by the ranges above"]);
        let Prices { as_of, region, .. } = prices;
        let old = if too_old { format!(": older than {DAYS} days, look them up again") } else { String::new() };
        let text = format!(
            "{table}\n{}\nassumed:\n  {}\nprices of {region} as of {as_of}, {days_old} days old{old}\nleft out: {LEFT_OUT}",
            listed("besides", &besides),
            assumed.join("\n  "),
        );
        // In dollars a month. `besides` is in neither `least` nor `most`.
        let json = json!({
            "prices_as_of": as_of, "region": region, "days_old": days_old, "parts": parts, "least": least, "most": most,
            "besides": besides, "assumed": assumed, "left_out": LEFT_OUT,
        });
        Ok(Answer::new(json, text).wrong_if(too_old))
    }
}

fn listed(heading: &str, parts: &[Part]) -> Table {
    let mut table = Table::headed([heading, "$", "how"]);
    for part in parts {
        table.row([&part.what, &parts::dollars(part.least, part.most), &part.how]);
    }
    table
}
