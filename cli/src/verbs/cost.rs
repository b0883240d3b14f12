//! `tally cost`: estimates what a deployment costs a month, by what a load needs (`parts`) and a price list (`prices`).

mod parts;
mod prices;

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
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

#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    prices_as_of: String,
    region: String,
    days_old: u64,
    /// In dollars a month.
    parts: Vec<Part>,
    least: f64,
    most: f64,
    /// What could be paid instead, or only now and then. It is in neither `least` nor `most`.
    besides: Vec<Part>,
    /// The assumptions about the load and the processes.
    assumed: Vec<String>,
    left_out: &'static str,
    #[serde(skip)]
    too_old: bool,
}

const LEFT_OUT: &str =
    "data between zones, logs, metrics, the network's own endpoints, what is trending, taxes and discounts";

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Cost> {
        let text = match &self.prices {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => prices::BUILT_IN.to_owned(),
        };
        let prices = Prices::read(&text).context("the price list cannot be read")?;
        let days_old = prices.days_old(Host::new("tally").clock().now())?;
        let parts = parts::monthly(&self.load, &prices);
        Ok(Cost {
            days_old,
            too_old: self.check && days_old > DAYS,
            least: parts.iter().map(|part| part.least).sum(),
            most: parts.iter().map(|part| part.most).sum(),
            parts,
            besides: parts::besides(&self.load, &prices),
            assumed: parts::assumed(&self.load),
            left_out: LEFT_OUT,
            prices_as_of: prices.as_of,
            region: prices.region,
        })
    }
}

impl Answer for Cost {
    fn table(&self) -> String {
        let mut table = Table::headed(["a month", "$", "how"]);
        for part in &self.parts {
            table.row([&part.what, &part.dollars(), &part.how]);
        }
        let sum = parts::dollars(self.least, self.most);
        table.row([&"in all", &sum, &""]);
        let mut besides = Table::headed(["besides", "$", "how"]);
        for part in &self.besides {
            besides.row([&part.what, &part.dollars(), &part.how]);
        }
        let Self { prices_as_of, region, days_old, .. } = self;
        let old = if self.too_old { format!(": older than {DAYS} days, look them up again") } else { String::new() };
        format!(
            "{table}\n{besides}\nassumed:\n  {}\nprices of {region} as of {prices_as_of}, {days_old} days old{old}\nleft out: {}",
            self.assumed.join("\n  "),
            self.left_out
        )
    }

    fn found(&self) -> bool {
        self.too_old
    }
}
