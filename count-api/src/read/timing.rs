//! Writes the response header `Server-Timing`, which tells a client where a count was read (this process's memory, the
//! shared cache or the table), and how long the cache and the table took.

use std::fmt::Write as _;
use std::time::Duration;

use axum::http::HeaderValue;

/// The layers that were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Whether some number was in this process's memory, which takes no time worth showing.
    pub local: bool,
    /// How long the shared cache took, if it was asked.
    pub redis: Option<Duration>,
    /// How long the table took, if it was asked.
    pub table: Option<Duration>,
}

impl Timing {
    /// All numbers were in memory.
    pub const LOCAL: Self = Self { local: true, redis: None, table: None };

    /// Combines the timings of two reads at the same time.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (redis, table) = (self.redis.max(other.redis), self.table.max(other.table));
        Self { local: self.local || other.local, redis, table }
    }

    /// Returns the value of the header `Server-Timing`.
    pub fn header(&self) -> HeaderValue {
        if *self == Self::LOCAL {
            return HeaderValue::from_static("local");
        }
        let mut text = if self.local { "local".to_owned() } else { String::new() };
        for (layer, took) in [("redis", self.redis), ("table", self.table)] {
            if let Some(took) = took {
                let gap = if text.is_empty() { "" } else { ", " };
                let _ = write!(text, "{gap}{layer};dur={:.1}", took.as_secs_f64() * 1e3);
            }
        }
        HeaderValue::from_str(&text).expect("words and digits make a header")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_that_was_asked_is_named_with_its_milliseconds() {
        let millis = |millis| Some(Duration::from_micros(millis));
        let redis = Timing { redis: millis(420), ..Timing::default() };
        let table = Timing { table: millis(12_345), ..redis };
        let slower = Timing { redis: millis(7_000), ..Timing::default() };
        assert_eq!(Timing::LOCAL.header(), "local");
        assert_eq!(redis.header(), "redis;dur=0.4");
        assert_eq!(table.header(), "redis;dur=0.4, table;dur=12.3");
        assert_eq!(Timing::LOCAL.and(table).and(slower).header(), "local, redis;dur=7.0, table;dur=12.3");
        assert_eq!(Timing::LOCAL.and(Timing::LOCAL), Timing::LOCAL);
    }
}
