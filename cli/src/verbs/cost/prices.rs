//! Reads the price list by which `tally cost` estimates what a deployment costs, a TOML file, and says how old it is.

use anyhow::Context;
use serde::Deserialize;
use tally_core::time::UnixMillis;

/// The price list that is built in.
pub(super) const BUILT_IN: &str = include_str!("../../../prices.toml");

const DAY_MILLIS: u64 = 86_400_000;
/// The first day that is not accepted, which begins the year 2100.
const END: u64 = 47_482;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    pub(super) as_of: String,
    pub(super) region: String,
    pub(super) dynamodb: DynamoDb,
    pub(super) load_balancer: LoadBalancer,
    pub(super) fargate: Fargate,
    pub(super) kafka: Kafka,
    pub(super) cache: Cache,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DynamoDb {
    pub(super) million_write_units: f64,
    pub(super) million_read_units: f64,
    pub(super) write_unit_hour: f64,
    pub(super) reserved_write_unit_hour: f64,
    pub(super) storage_gb_month: f64,
    pub(super) recovery_gb_month: f64,
    pub(super) million_stream_reads: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadBalancer {
    pub(super) capacity_unit_hour: f64,
    pub(super) capacity_unit_gb: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fargate {
    pub(super) arm_cpu_hour: f64,
    pub(super) arm_gb_hour: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kafka {
    pub(super) broker_hour: f64,
    pub(super) ingress_gb: f64,
    pub(super) storage_gb_month: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache {
    pub(super) node_hour: f64,
}

impl Prices {
    /// Parses a price list.
    ///
    /// # Errors
    /// A price is missing, or one is not known.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Returns how many days old the prices are; 0 if `as_of` is in the future.
    ///
    /// # Errors
    /// `as_of` is no day.
    pub(super) fn days_old(&self, now: UnixMillis) -> anyhow::Result<u64> {
        let today = now.0 / DAY_MILLIS;
        Ok(today.saturating_sub(day(&self.as_of).with_context(|| format!("as_of = {:?}", self.as_of))?))
    }
}

/// Returns the days from 1970 to a day that is written as `2026-11-01` or `2026-11-1`.
fn day(text: &str) -> anyhow::Result<u64> {
    let padded = text.split('-').map(|number| format!("{number:0>2}")).collect::<Vec<_>>().join("-");
    let is_it = |day: &u64| UnixMillis(day * DAY_MILLIS).date().strip_suffix(" 00:00:00") == Some(&*padded);
    (0..END).find(is_it).context("a day is written as 2026-11-01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_whole_and_grows_old() {
        let prices = Prices::read(BUILT_IN).unwrap();
        let at = |days: u64| prices.days_old(UnixMillis(days * DAY_MILLIS)).unwrap();
        let as_of = day(&prices.as_of).unwrap();
        assert_eq!((at(as_of), at(as_of + 181), at(as_of - 1)), (0, 181, 0));
        assert_eq!(["1970-01-01", "1970-1-2", "2026-11-01"].map(|text| day(text).unwrap()), [0, 1, 20_758]);
        assert!(["2026-11", "1.11.2026"].iter().all(|text| day(text).is_err()));
        assert!(Prices::read(&BUILT_IN.replace("node_hour", "knot_hour")).is_err());
    }
}
