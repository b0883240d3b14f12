//! Reads the price list, a TOML file, and says how old it is.

use anyhow::{Context, bail};
use serde::Deserialize;
use tally_core::time::UnixMillis;

/// The price list that is built in.
pub(super) const BUILT_IN: &str = include_str!("../../../prices.toml");

const DAY_MILLIS: u64 = 86_400_000;

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

/// Returns the days from 1970 to a day that is written as `2026-11-01`.
fn day(text: &str) -> anyhow::Result<u64> {
    let numbers: Option<Vec<u64>> = text.split('-').map(|part| part.parse().ok()).collect();
    let Some([year @ 1970..=9999, month @ 1..=12, day @ 1..=31]) = numbers.as_deref() else {
        bail!("a day is written as 2026-11-01");
    };
    // This year begins in March, so that the day that leap years add is its last.
    let (year, month) = if *month <= 2 { (year - 1, month + 9) } else { (*year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1;
    Ok(days - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_counted_as_calendars_do() {
        for (text, days) in [("1970-01-01", 0), ("2000-02-29", 11_016), ("2000-03-01", 11_017), ("2026-11-01", 20_758)]
        {
            assert_eq!(day(text).unwrap(), days, "{text}");
        }
        for text in ["", "2026-11", "2026-13-01", "1.11.2026", "2026-11-01-2", "1969-12-31"] {
            assert!(day(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_built_in_list_is_whole_and_grows_old() {
        let prices = Prices::read(BUILT_IN).unwrap();
        let at = |days: u64| prices.days_old(UnixMillis(days * DAY_MILLIS)).unwrap();
        let as_of = day(&prices.as_of).unwrap();
        assert_eq!((at(as_of), at(as_of + 181), at(as_of - 1)), (0, 181, 0));
        assert!(Prices::read(&BUILT_IN.replace("node_hour", "knot_hour")).is_err());
    }
}
