//! `tally cost`: what a deployment costs a month, by what a like takes and a price list with a date.

mod parts;
mod prices;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tally_service::{Host, parse_duration};

use self::parts::Part;
use self::prices::Prices;
use crate::said::{Answer, Table};

/// How old prices may get before `--check` fails.
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

/// What the deployment carries.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Load {
    /// Likes and unlikes a day
    #[arg(long, default_value_t = 5e9, value_parser = count, value_name = "COUNT")]
    likes_per_day: f64,

    /// Counts asked for a day. By default ten for each like
    #[arg(long, value_parser = count, value_name = "COUNT")]
    reads_per_day: Option<f64>,

    /// In which month of its life
    #[arg(long, default_value_t = 12.0, value_parser = count, value_name = "COUNT")]
    months: f64,

    /// Write units that a like takes of rows: a first like takes one, and one again or an unlike without a row takes two
    #[arg(long, default_value_t = 1.02, value_parser = share, value_name = "COUNT")]
    units_per_like: f64,

    /// Likes that one counter update takes in: tally_stream_records_total by that of updates. By default 4, and fewer where a flush
    /// gathers fewer
    #[arg(long, value_parser = share, value_name = "COUNT")]
    changes_per_update: Option<f64>,

    /// Partitions of each of the two logs
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT")]
    partitions: u32,

    /// How long change-streamers gather changes before they write counters
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "SPAN")]
    linger: Duration,

    /// Share of the events that leave a row behind: 1 without unlikes
    #[arg(long, default_value_t = 1.0, value_parser = count, value_name = "SHARE")]
    kept: f64,

    /// Bytes of a row: docs/sizing.md says how to tell
    #[arg(long, default_value_t = 153.0, value_parser = count, value_name = "BYTES")]
    row_bytes: f64,

    /// Share of the reads that reach the table
    #[arg(long, default_value_t = 0.001, value_parser = count, value_name = "SHARE")]
    cache_misses: f64,
}

fn count(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0).ok_or("a number from 0 up")
}

fn share(text: &str) -> Result<f64, &'static str> {
    count(text).ok().filter(|number| *number >= 1.0).ok_or("a number from 1 up")
}

/// What it costs.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    prices_as_of: String,
    region: String,
    days_old: u64,
    /// In dollars a month.
    parts: Vec<Part>,
    least: f64,
    most: f64,
    /// What could be done instead, or is done now and then; in no sum.
    besides: Vec<Part>,
    /// What is assumed of the load and of the processes.
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
