//! The state of the emulated DynamoDB: tables, streams, tokens and the current time. `op` contains the operations on it.

pub(crate) mod image;
pub(crate) mod iterator;
pub(crate) mod key;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod shard;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod throughput;
pub(crate) mod tokens;

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::key::Key;
use self::stream::Stream;
use self::table::{Context, Stored, Table};
use self::throughput::{Throughput, Use};
use self::tokens::Tokens;
use crate::clock::{Millis, millis};
use crate::config::Config;
use crate::error::Error;

/// Everything that a request can read or change.
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) rng: StdRng,
    /// The time of the current request.
    pub(crate) now: Millis,
    pub(crate) tokens: Tokens,
    throughput: Throughput,
    pub(crate) tables: BTreeMap<String, Table>,
    /// Disabled streams that can still be read.
    retired: Vec<Stream>,
    /// The newest stream label, so that no two streams have the same.
    last_label: Millis,
}

impl Engine {
    pub(crate) fn new(config: Config, now: Millis) -> Self {
        Self {
            rng: StdRng::seed_from_u64(config.seed),
            throughput: Throughput::default(),
            config,
            now,
            tokens: Tokens::default(),
            tables: BTreeMap::new(),
            retired: Vec::new(),
            last_label: 0,
        }
    }

    /// Advances the time, and does everything that was due by `now`.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.now = self.now.max(now);
        let now = self.now;
        for table in self.tables.values_mut() {
            let mut context = Context { now, config: &self.config, rng: &mut self.rng, by_service: true };
            table.expire(&mut context);
            if let Some(stream) = &mut table.stream {
                stream.sweep(now, &self.config);
            }
        }
        let retention = millis(self.config.stream_retention);
        self.retired.retain(|stream| stream.disabled.is_none_or(|disabled| disabled.saturating_add(retention) > now));
        self.retired.iter_mut().for_each(|stream| stream.sweep(now, &self.config));
    }

    /// Deletes every item of a table that has an expiry, and returns their number; `None` if there is no such table.
    pub(crate) fn expire_early(&mut self, table: &str) -> Option<usize> {
        let mut context = Context { now: self.now, config: &self.config, rng: &mut self.rng, by_service: true };
        Some(self.tables.get_mut(table)?.expire_early(&mut context))
    }

    pub(crate) fn table(&self, name: &str) -> Result<&Table, Error> {
        self.tables.get(name).ok_or_else(|| Error::not_found("Requested resource not found"))
    }

    pub(crate) fn table_mut(&mut self, name: &str) -> Result<&mut Table, Error> {
        self.tables.get_mut(name).ok_or_else(|| Error::not_found("Requested resource not found"))
    }

    /// The ARN of a table.
    pub(crate) fn arn_of(&self, table: &str) -> String {
        format!("arn:aws:dynamodb:{}:000000000000:table/{table}", self.config.region)
    }

    /// Deletes a table. Its stream can be read until its records expire.
    pub(crate) fn remove_table(&mut self, name: &str) -> Option<Table> {
        self.retire_stream(name);
        self.tables.remove(name)
    }

    pub(crate) fn retire_stream(&mut self, table: &str) {
        let now = self.now;
        if let Some(mut stream) = self.tables.get_mut(table).and_then(|table| table.stream.take()) {
            stream.disable(now);
            self.retired.push(stream);
        }
    }

    /// A time for the label of a new stream, later than every other label.
    pub(crate) fn next_label(&mut self) -> Millis {
        self.last_label = self.now.max(self.last_label + 1);
        self.last_label
    }

    /// All streams, including disabled ones.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.tables.values().filter_map(|table| table.stream.as_ref()).chain(&self.retired)
    }

    pub(crate) fn stream(&self, arn: &str) -> Result<&Stream, Error> {
        self.streams()
            .find(|stream| stream.arn == arn)
            .ok_or_else(|| Error::not_found(format!("Requested resource not found: Stream: {arn} not found")))
    }

    pub(crate) fn write(&mut self, table: &str, key: &Key, new: Option<&Stored>) -> Result<(), Error> {
        let table = self.tables.get_mut(table).ok_or_else(|| Error::not_found("Requested resource not found"))?;
        let mut context = Context { now: self.now, config: &self.config, rng: &mut self.rng, by_service: false };
        table.write(key, new, &mut context);
        Ok(())
    }

    /// Refuses a request for `key` in `table` if the key has used up its throughput.
    pub(crate) fn admit(&self, used: Use, table: &str, key: &Key) -> Result<(), Error> {
        let Some(limit) = self.key_limit(used) else { return Ok(()) };
        if self.throughput.admits(&(used, table.to_owned(), key.hash()), limit, self.now) {
            return Ok(());
        }
        let table = self.table(table)?;
        Err(Error::key_is_hot(used, &table.arn, table.provisioned.is_none()))
    }

    /// Adds the consumption of a request for `key` in `table`, in half units.
    pub(crate) fn spend(&mut self, used: Use, table: &str, key: &Key, halves: u64) {
        if let Some(limit) = self.key_limit(used) {
            self.throughput.spend((used, table.to_owned(), key.hash()), limit, halves, self.now);
        }
    }

    /// What a partition key may use in a second, in half units; `None` means no limit.
    fn key_limit(&self, used: Use) -> Option<u64> {
        let units = match used {
            Use::Read => self.config.key_read_units,
            Use::Write => self.config.key_write_units,
        };
        units.map(|units| 2 * u64::from(units))
    }

    /// The time that a read sees: `None` for now if it is consistent, otherwise a random time within the lag.
    pub(crate) fn as_of(&mut self, consistent: bool) -> Option<Millis> {
        let lag = millis(self.config.read_lag);
        if consistent || lag == 0 {
            return None;
        }
        Some(self.now.saturating_sub(self.rng.random_range(0..=lag)))
    }

    /// A random UUID (version 4) for a table.
    pub(crate) fn uuid(&mut self) -> String {
        let bits: u128 = self.rng.random();
        let bits = (bits & !(0xF << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}
