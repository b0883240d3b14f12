//! `tally cost`: estimates what a deployment costs a month, by what a load needs and a price list (`prices`).
//! docs/sizing.md says where the figures about a like come from. `monthly` has what is always paid, `alternatives` what
//! could be paid instead, `assumed` the assumptions.

mod prices;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::json;
use tally_service::{Host, parse_duration};

use self::prices::{BUILT_IN, Prices};
use crate::given::text_of;
use crate::said::{Answer, Table};

/// How many days old prices may be before `--check` fails.
const MAX_AGE_DAYS: u64 = 180;

/// Days and hours of a month, on average, and the seconds of a day.
const DAYS: f64 = 30.4;
const HOURS: f64 = 730.0;
const DAY: f64 = 86_400.0;
const GB: f64 = 1e9;

/// How many bytes the store adds to each item when it bills storage.
const ITEM_OVERHEAD: f64 = 100.0;
/// The share of its provisioned capacity that a table uses on average.
const UTILIZATION: f64 = 0.7;
/// How many bytes one read unit reads consistently.
const READ_UNIT: f64 = 4_096.0;
/// Bytes of a request and its answer, and of an event with its key and headers.
const ANSWER_BYTES: f64 = 650.0;
const EVENT_BYTES: f64 = 150.0;
/// How long the topic keeps an event, and how many brokers there are.
const RETENTION_DAYS: f64 = 7.0;
const BROKERS: f64 = 3.0;
/// How many likes a second the services together carry for each vCPU, on average: an allowance, and no measurement. It
/// is 60 vCPU for five billion likes a day and ten times as many reads, with room for peaks, failures and releases.
/// docs/scale.md derives fewer from what a core carries.
const LIKES_PER_CPU: f64 = 965.0;
/// The vCPUs of the smallest deployment: seven tasks of a quarter each, as in infra/env/trial.env.
const LEAST_CPUS: f64 = 7.0 * 0.25;
/// How many likes one counter update takes in, if a flush gathers that many: the likes of a hot post share an update.
const CHANGES_PER_UPDATE: f64 = 4.0;
const GB_PER_CPU: f64 = 2.0;
/// How many nodes the cache has.
const NODES: f64 = 3.0;
/// How many write units a second need one more partition of the table, and so one more stream shard; and how often a
/// second each stream shard is read.
const UNITS_PER_SHARD: f64 = 579.0;
const READS_PER_SHARD: f64 = 5.0;
/// How often a second the lease of a stream shard is renewed.
const LEASES: f64 = 40.0 / 60.0;

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
        let text = self.prices.as_deref().map_or_else(|| Ok(BUILT_IN.to_owned()), text_of)?;
        let prices = Prices::read(&text).context("the price list cannot be read")?;
        let days_old = prices.days_old(Host::new("tally").clock().now())?;
        let too_old = self.check && days_old > MAX_AGE_DAYS;
        let (parts, besides) = (monthly(&self.load, &prices), alternatives(&self.load, &prices));
        let least: f64 = parts.iter().map(|part| part.least).sum();
        let most: f64 = parts.iter().map(|part| part.most).sum();
        let assumed = assumed(&self.load);
        let mut table = listed(&format!("in month {}", self.load.months), &parts);
        table.row([&"in all", &dollars(least, most), &"the least and the most by the ranges above"]);
        let Prices { as_of, region, .. } = prices;
        let old = if too_old { format!(": older than {MAX_AGE_DAYS} days, look them up again") } else { String::new() };
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
        table.row([&part.what, &dollars(part.least, part.most), &part.how]);
    }
    table
}

/// The load that the deployment carries.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Load {
    /// Likes and unlikes a day
    #[arg(long, default_value_t = 5e9, value_parser = count, value_name = "COUNT")]
    likes_per_day: f64,

    /// Counts asked for a day. By default ten for each like
    #[arg(long, value_parser = count, value_name = "COUNT")]
    reads_per_day: Option<f64>,

    /// Which month of the deployment: rows of so many months are stored
    #[arg(long, default_value_t = 12.0, value_parser = count, value_name = "COUNT")]
    months: f64,

    /// Write units for rows that a like takes: 1 for a first like, 2 for a repeated one or an unlike without a row
    #[arg(long, default_value_t = 1.02, value_parser = share, value_name = "COUNT")]
    units_per_like: f64,

    /// Likes that one counter update takes in: tally_stream_records_total of the kinds liked and unliked, divided by
    /// tally_updates_total. By default 4, and fewer where a flush gathers fewer
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
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or("a number from 0 up, such as 1000000 or 1e6")
}

fn share(text: &str) -> Result<f64, &'static str> {
    count(text).ok().filter(|number| *number >= 1.0).ok_or("a number from 1 up")
}

/// A part of the price, in dollars a month: the least and the most, which are equal if it depends on the load alone.
#[derive(Debug, Serialize)]
struct Part {
    what: &'static str,
    least: f64,
    most: f64,
    how: String,
}

impl Part {
    fn new(what: &'static str, dollars: f64, how: impl Into<String>) -> Self {
        Self::between(what, [dollars; 2], how)
    }

    fn between(what: &'static str, [least, most]: [f64; 2], how: impl Into<String>) -> Self {
        Self { what, least, most, how: how.into() }
    }
}

/// Formats a sum, or the two ends of a range, without cents.
fn dollars(least: f64, most: f64) -> String {
    let grouped = |sum: f64| {
        let digits = format!("{sum:.0}");
        let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
        groups.collect::<Vec<_>>().join(",")
    };
    if (most - least).abs() < 0.5 { grouped(least) } else { format!("{} to {}", grouped(least), grouped(most)) }
}

/// Figures that follow from the load.
struct Derived {
    /// Partitions of each of the two logs.
    partitions: f64,
    /// How often a second one partition's counters are flushed, and how many changes each flush gathers.
    flushes: f64,
    gathered: f64,
    changes_per_update: f64,
    /// The vCPUs of all services together.
    cpus: f64,
    /// Likes a month, and likes a second.
    likes: f64,
    rate: f64,
    reads: f64,
    /// Write units for rows a month.
    units: f64,
    /// Shards of the table's stream.
    shards: f64,
    rows: f64,
}

impl From<&Load> for Derived {
    fn from(load: &Load) -> Self {
        let (likes, rate, partitions) =
            (load.likes_per_day * DAYS, load.likes_per_day / DAY, f64::from(load.partitions));
        let (of_partition, units) = (rate / partitions, likes * load.units_per_like);
        let gathered = (of_partition * load.linger.as_secs_f64()).max(1.0);
        Self {
            partitions,
            flushes: of_partition / gathered,
            gathered,
            changes_per_update: load.changes_per_update.unwrap_or(CHANGES_PER_UPDATE.min(gathered)),
            cpus: (rate / LIKES_PER_CPU).max(LEAST_CPUS),
            likes,
            rate,
            reads: load.reads_per_day.unwrap_or(load.likes_per_day * 10.0) * DAYS,
            units,
            shards: (units / (DAYS * DAY) / UNITS_PER_SHARD).ceil().max(1.0),
            rows: likes * load.months * load.kept,
        }
    }
}

/// Returns what is paid each month.
fn monthly(load: &Load, prices: &Prices) -> Vec<Part> {
    let (of, tables) = (Derived::from(load), &prices.dynamodb);
    let write = tables.million_write_units / 1e6;
    let stored = of.rows * (load.row_bytes + ITEM_OVERHEAD) / GB;
    let each_month = stored * tables.storage_gb_month / load.months.max(1.0);
    let counts = |updates: f64, units: f64| of.likes / updates * units * write;
    let gathering = match of.changes_per_update {
        1.0 => "least: 1 unit for each like; most: 2".to_owned(),
        likes => format!("least: 1 unit for {} likes; most: 2 for each", number(likes)),
    };
    let processes = of.cpus * HOURS * (prices.fargate.arm_cpu_hour + GB_PER_CPU * prices.fargate.arm_gb_hour);
    let stream = of.shards * READS_PER_SHARD * DAYS * DAY * tables.million_stream_reads / 1e6;
    vec![
        Part::new("rows", of.units * write, format!("{} write units a like, on demand", load.units_per_like)),
        Part::between("counts", [counts(of.changes_per_update, 1.0), counts(1.0, 2.0)], gathering),
        Part::new(
            "reads of counts",
            of.reads * load.cache_misses * tables.million_read_units / 1e6,
            "what the cache misses",
        ),
        Part::new(
            "storage",
            stored * tables.storage_gb_month,
            format!(
                "{} months of rows of {} bytes and the 100 that are billed for each item; {} more each month",
                load.months,
                load.row_bytes,
                dollars(each_month, each_month)
            ),
        ),
        Part::new("recovery to a moment", stored * tables.recovery_gb_month, "35 days, by the size of the table"),
        Part::new("load balancer", balancer(&of, prices), format!("{ANSWER_BYTES} bytes a read")),
        Part::new("processes", processes, format!("{} vCPU of Fargate, arm64", number(of.cpus))),
        Part::new("kafka", kafka(load, prices), format!("{BROKERS} brokers, {RETENTION_DAYS} days kept")),
        Part::new("cache", NODES * HOURS * prices.cache.node_hour, format!("{NODES} nodes")),
        Part::new("stream reads", stream, format!("{:.0} stream shards", of.shards)),
        Part::between(
            "claims and standings",
            [0.0, of.flushes].map(|flushes| state(&of, flushes) * write),
            format!(
                "least: 1 a second for each of {} partitions of either log; most: {} more for changes",
                of.partitions,
                number(of.flushes)
            ),
        ),
    ]
}

/// Returns how many write units a month go into claims, standings and leases.
fn state(of: &Derived, flushes: f64) -> f64 {
    let a_second = of.partitions + of.partitions * (1.0 + flushes) + of.shards * LEASES;
    a_second * DAYS * DAY
}

/// Formats a number with at most two decimals, and without any from 10 up.
fn number(number: f64) -> String {
    if number >= 10.0 {
        format!("{number:.0}")
    } else {
        format!("{:.2}", number).trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Returns the assumptions, a line each.
fn assumed(load: &Load) -> Vec<String> {
    let of = Derived::from(load);
    let percent = |share: f64| number(share * 100.0);
    let Load { units_per_like, row_bytes, kept, cache_misses, linger, .. } = load;
    vec![
        format!("{} likes/s on average, and {} reads/s", number(of.rate), number(of.reads / (DAYS * DAY))),
        format!(
            "{} partitions and a linger of {linger:?}; changes in a flush: {}, in an update of a counter: {}",
            of.partitions,
            number(of.gathered),
            number(of.changes_per_update)
        ),
        format!(
            "{units_per_like} write units a like, rows of {row_bytes} bytes, {} % of the likes leave one",
            percent(*kept)
        ),
        format!(
            "{} % of the reads reach the table, {ANSWER_BYTES} bytes a read, {EVENT_BYTES} bytes an event",
            percent(*cache_misses)
        ),
        format!(
            "{LIKES_PER_CPU} likes/s for each vCPU of all services, and {LEAST_CPUS} vCPU at least: an allowance for reads and \
             peaks, no measurement"
        ),
    ]
}

/// Returns what could be paid instead, and what an audit costs each time.
fn alternatives(load: &Load, prices: &Prices) -> Vec<Part> {
    let (of, tables) = (Derived::from(load), &prices.dynamodb);
    let provisioned = of.units / (DAYS * DAY) / UTILIZATION * HOURS;
    let audit = of.rows * load.row_bytes / READ_UNIT * tables.million_read_units / 1e6;
    vec![
        Part::new("rows, provisioned", provisioned * tables.write_unit_hour, "instead of on demand, 70 % used"),
        Part::new("rows, reserved", provisioned * tables.reserved_write_unit_hour, "the same, reserved for a year"),
        Part::new("a full audit", audit, "each time: every row read once, consistently"),
    ]
}

fn balancer(of: &Derived, prices: &Prices) -> f64 {
    let an_hour = of.reads / (DAYS * 24.0) * ANSWER_BYTES / GB;
    an_hour / prices.load_balancer.capacity_unit_gb * prices.load_balancer.capacity_unit_hour * HOURS
}

fn kafka(load: &Load, prices: &Prices) -> f64 {
    let a_day = load.likes_per_day * EVENT_BYTES / GB;
    BROKERS * HOURS * prices.kafka.broker_hour
        + a_day * DAYS * prices.kafka.ingress_gb
        + a_day * RETENTION_DAYS * prices.kafka.storage_gb_month
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }

    fn load(args: &[&str]) -> Load {
        Line::try_parse_from(std::iter::once(&"cost").chain(args)).unwrap().load
    }

    fn part(load: &Load, what: &str) -> Part {
        let prices = Prices::read(BUILT_IN).unwrap();
        let all = monthly(load, &prices).into_iter().chain(alternatives(load, &prices));
        all.into_iter().find(|part| part.what == what).unwrap()
    }

    fn said(load: &Load, what: &str) -> String {
        let part = part(load, what);
        dollars(part.least, part.most)
    }

    /// For five billion likes a day and ten times as many reads, in the twelfth month.
    #[test]
    fn the_sums_are_those_that_were_computed_by_hand() {
        let load = load(&["--likes-per-day", "5e9", "--months", "12"]);
        for (what, known) in [
            ("rows", 96_900.0),
            ("load balancer", 8_000.0),
            ("processes", 1_700.0),
            ("kafka", 1_600.0),
            ("cache", 800.0),
            ("stream reads", 300.0),
            ("rows, provisioned", 40_000.0),
            ("rows, reserved", 17_900.0),
            ("a full audit", 8_600.0),
            // They were computed for 143 bytes a row, without the 100 that are billed besides.
            ("storage", 65_000.0 * 253.0 / 143.0),
            ("recovery to a moment", 52_000.0 * 253.0 / 143.0),
        ] {
            let Part { least, most, .. } = part(&load, what);
            assert!(least >= known * 0.85 && most <= known * 1.15, "{what}: {least} to {most} and not {known}");
        }
        assert_eq!(said(&load, "counts"), "23,750 to 190,000");
        assert_eq!(said(&load, "claims and standings"), "190 to 584");
    }

    /// The trial of docs/aws.md: each change is an update of its own, and the tasks are the smallest ones.
    #[test]
    fn a_trial_gathers_nothing_and_has_the_smallest_tasks() {
        let trial = load(&["--likes-per-day", "1e5"]);
        let processes = part(&trial, "processes");
        assert_eq!((said(&trial, "processes").as_str(), processes.how.as_str()), ("50", "1.75 vCPU of Fargate, arm64"));
        assert!(part(&trial, "counts").most < 5.0 && part(&trial, "rows").most < 10.0);
        let assumed = assumed(&trial).join("; ");
        assert!(assumed.contains("1.16 likes/s on average, and 12 reads/s"), "{assumed}");
        assert!(assumed.contains("changes in a flush: 1, in an update of a counter: 1"), "{assumed}");
        let longer = load(&["--likes-per-day", "1e8", "--partitions", "6", "--linger", "1s"]);
        assert_eq!(Derived::from(&longer).gathered.round(), 193.0);
        assert_eq!(Derived::from(&longer).flushes.round(), 1.0);
    }
}
