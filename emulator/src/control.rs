//! Commands to the emulator that DynamoDB does not have, for tests and people, as methods and as HTTP routes: split,
//! roll (close and continue) and trim stream shards, expire items, advance the clock, set faults, read statistics.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tally_service::http::{names_one_host, same_site};

use crate::emulator::Emulator;
use crate::engine::Engine;
use crate::engine::stream::Stream;
use crate::engine::table::{Changed, Table};
use crate::fault::Rule;
use crate::value::Item;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The table does not exist or has no enabled stream.
    #[error("table {0} has no running stream")]
    NoStream(String),
    #[error("no table {0}")]
    NoTable(String),
    #[error("stream has no open shard {0}")]
    NoShard(String),
    /// The shard cannot be cut, or the key to cut at is outside of it.
    #[error("shard {0} cannot be cut there")]
    Uncuttable(String),
    #[error("key to cut at does not fit the table: {0}")]
    BadKey(String),
    #[error("command could not be read: {0}")]
    Unreadable(String),
    #[error("no control route {0}")]
    NoRoute(String),
}

impl Emulator {
    /// Splits an open shard in two, and returns the ids of its children. Without a shard, it splits the one that contains
    /// `at`, or the busiest.
    ///
    /// `at` is the key of an item: the second child begins at the hash of its collection.
    pub fn split_shard(
        &self,
        table: &str,
        shard: Option<&str>,
        at: Option<&Item>,
    ) -> Result<Vec<String>, ControlError> {
        let mut state = self.state();
        let now = state.engine.now;
        let stream = running(&mut state.engine, table)?;
        let cut = at.map(|key| stream.schema.key_of(key)).transpose();
        let cut = cut.map_err(|error| ControlError::BadKey(error.message))?;
        let id = match (shard, &cut) {
            (Some(id), _) => Some(id.to_owned()),
            (None, Some(cut)) => stream.holding(cut).map(str::to_owned),
            (None, None) => {
                let open = stream.shards.values().filter(|shard| shard.is_open());
                open.max_by_key(|shard| shard.written).map(|shard| shard.id.clone())
            }
        };
        let id = id.ok_or_else(|| ControlError::NoStream(table.to_owned()))?;
        if !stream.shards.get(&id).is_some_and(|shard| shard.is_open()) {
            return Err(ControlError::NoShard(id));
        }
        stream.split(&id, cut, now).ok_or(ControlError::Uncuttable(id))
    }

    /// Closes every open shard, or the given one, continues each with one child, and returns the ids of the children.
    pub fn roll_shards(&self, table: &str, shard: Option<&str>) -> Result<Vec<String>, ControlError> {
        let mut state = self.state();
        let now = state.engine.now;
        let stream = running(&mut state.engine, table)?;
        let ids = shard.map_or_else(|| stream.open_ids(), |id| vec![id.to_owned()]);
        let mut children = Vec::new();
        for id in ids {
            children.extend(stream.roll(&id, now).ok_or(ControlError::NoShard(id))?);
        }
        Ok(children)
    }

    /// Drops records of a stream early, of one shard or all, up to a sequence number or all. Returns the number of records.
    pub fn trim(&self, table: &str, shard: Option<&str>, sequence: Option<&str>) -> Result<usize, ControlError> {
        let mut state = self.state();
        let stream = running(&mut state.engine, table)?;
        let sequence = match sequence {
            None => None,
            Some(text) => Some(stream.sequence_of(text).ok_or_else(|| ControlError::BadKey(text.to_owned()))?),
        };
        if let Some(id) = shard.filter(|id| !stream.shards.contains_key(*id)) {
            return Err(ControlError::NoShard(id.to_owned()));
        }
        Ok(stream.trim(shard, sequence))
    }

    /// Deletes every item that has an expiry before that time has come. Returns the number of items.
    ///
    /// # Errors
    /// There is no such table.
    pub fn expire(&self, table: &str) -> Result<usize, ControlError> {
        self.state().engine.expire_early(table).ok_or_else(|| ControlError::NoTable(table.to_owned()))
    }

    /// Calls `told` for every change of a table's items from now on, in order, independently of its stream. It is called under
    /// the emulator's lock and must not call the emulator.
    ///
    /// # Errors
    /// There is no such table.
    pub fn watch(&self, table: &str, told: impl FnMut(Changed) + Send + 'static) -> Result<(), ControlError> {
        let mut state = self.state();
        let found = state.engine.table_mut(table).map_err(|_| ControlError::NoTable(table.to_owned()))?;
        found.watch = Some(Box::new(told));
        Ok(())
    }

    /// Advances the clock, and returns its new time in milliseconds since the Unix epoch.
    pub fn advance_clock(&self, by: Duration) -> u64 {
        self.clock().advance(by);
        self.state().engine.now
    }

    /// Replaces all fault rules. Their calls and durations count from now.
    pub fn set_faults(&self, rules: Vec<Rule>) {
        let mut state = self.state();
        let now = state.engine.now;
        state.faults.set(rules, now);
    }

    pub fn faults(&self) -> Vec<Rule> {
        self.state().faults.rules()
    }

    /// The grants in the policies that no request has needed so far, each as `ROLE: ACTION on TABLE`.
    pub fn unused_grants(&self) -> Vec<String> {
        let state = self.state();
        state.engine.config.policies.as_ref().map(|policies| policies.unused(&state.uses)).unwrap_or_default()
    }

    /// The actions that the policies have refused, in the same format, with their numbers.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        self.state().uses.refused.clone()
    }

    /// Statistics of the requests, tables and streams.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let fired = state.faults.fired.iter().map(|(operation, faults)| {
            (operation.clone(), faults.iter().map(|(fault, count)| ((*fault).to_owned(), *count)).collect())
        });
        Stats {
            now_ms: state.engine.now,
            requests: state.requests.iter().map(|(operation, count)| ((*operation).to_owned(), *count)).collect(),
            faults: fired.collect(),
            ghosts_pending: state.ghosts.len(),
            ghosts_applied: state.ghosts_applied,
            panics: state.panics,
            tables: state.engine.tables.iter().map(|(name, table)| (name.clone(), table_stats(table))).collect(),
        }
    }
}

/// A snapshot of the statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The time of the clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Requests that could be parsed, by operation.
    pub requests: BTreeMap<String, u64>,
    /// Faults that fired, by operation and fault.
    pub faults: BTreeMap<String, BTreeMap<String, u64>>,
    /// Late requests that are still pending.
    pub ghosts_pending: usize,
    /// Late requests that were carried out, including refused ones.
    pub ghosts_applied: u64,
    /// Requests on which the emulator panicked. Each was answered with 500, and is a bug.
    pub panics: u64,
    pub tables: BTreeMap<String, TableStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    pub items: usize,
    /// Items with an expiry.
    pub expiring: usize,
    /// The total size of the items.
    pub bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    pub label: String,
    /// The ids of the open shards, by the start of their range.
    pub open_shards: Vec<String>,
    /// The number of shards, including closed ones.
    pub shards: usize,
    /// Records that can be read now or soon.
    pub records: usize,
}

impl Stats {
    /// How often a fault fired, over all operations.
    pub fn fired(&self, fault: &str) -> u64 {
        self.faults.values().filter_map(|by_fault| by_fault.get(fault)).sum()
    }
}

fn table_stats(table: &Table) -> TableStats {
    let stream = table.stream.as_ref().map(|stream| StreamStats {
        label: stream.label.clone(),
        open_shards: stream.open_ids(),
        shards: stream.shards.len(),
        records: stream.records(),
    });
    TableStats { items: table.rows.len(), expiring: table.expiring(), bytes: table.bytes, stream }
}

fn running<'a>(engine: &'a mut Engine, table: &str) -> Result<&'a mut Stream, ControlError> {
    let stream = engine.tables.get_mut(table).and_then(|table| table.stream.as_mut());
    stream.ok_or_else(|| ControlError::NoStream(table.to_owned()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardCommand {
    table: String,
    shard: Option<String>,
    at: Option<Item>,
    sequence: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpireCommand {
    table: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockCommand {
    #[serde(default)]
    advance_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultCommand {
    rules: Vec<Rule>,
}

/// Answers a control request, with JSON bodies. A failed command is answered with an `error`.
pub(crate) fn answer(emulator: &Emulator, head: &Parts, route: &str, body: &[u8]) -> Response<Bytes> {
    // A page can post a form or plain text to another site without a preflight request, but not JSON.
    if head.method == Method::POST && !head.headers.get(header::CONTENT_TYPE).is_some_and(is_json) {
        return failed(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a command has the content type application/json");
    }
    match command(emulator, &head.method, route, body) {
        Ok(value) => answered(StatusCode::OK, &value),
        Err(error @ ControlError::NoRoute(_)) => failed(StatusCode::NOT_FOUND, &error.to_string()),
        Err(error) => failed(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

fn is_json(value: &HeaderValue) -> bool {
    let kind = value.to_str().ok().and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The answer to a request that a page of another site may have sent.
pub(crate) fn refusal(head: &Parts) -> Option<Response<Bytes>> {
    let why = match names_one_host(head.version, &head.headers) {
        true => same_site::check(&head.headers, |_| false).err()?,
        false => "the request names no host, or several",
    };
    Some(failed(StatusCode::FORBIDDEN, why))
}

fn failed(status: StatusCode, error: &str) -> Response<Bytes> {
    answered(status, &json!({"error": error}))
}

fn answered(status: StatusCode, value: &serde_json::Value) -> Response<Bytes> {
    let mut response = Response::new(value.to_string().into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn command(emulator: &Emulator, method: &Method, route: &str, body: &[u8]) -> Result<serde_json::Value, ControlError> {
    match (method.as_str(), route) {
        ("POST", "split") => {
            let command: ShardCommand = read(body)?;
            let shards = emulator.split_shard(&command.table, command.shard.as_deref(), command.at.as_ref())?;
            Ok(json!({"shards": shards}))
        }
        ("POST", "roll") => {
            let command: ShardCommand = read(body)?;
            Ok(json!({"shards": emulator.roll_shards(&command.table, command.shard.as_deref())?}))
        }
        ("POST", "trim") => {
            let command: ShardCommand = read(body)?;
            let trimmed = emulator.trim(&command.table, command.shard.as_deref(), command.sequence.as_deref())?;
            Ok(json!({"trimmed": trimmed}))
        }
        ("POST", "expire") => {
            let command: ExpireCommand = read(body)?;
            Ok(json!({"expired": emulator.expire(&command.table)?}))
        }
        ("POST", "clock") => {
            let command: ClockCommand = read(body)?;
            Ok(json!({"now_ms": emulator.advance_clock(Duration::from_millis(command.advance_ms))}))
        }
        ("GET", "clock") => Ok(json!({"now_ms": emulator.stats().now_ms})),
        ("POST", "fault") => {
            let command: FaultCommand = read(body)?;
            emulator.set_faults(command.rules);
            Ok(json!({"rules": emulator.faults()}))
        }
        ("GET", "fault") => Ok(json!({"rules": emulator.faults()})),
        ("GET", "grants") => Ok(json!({"unused": emulator.unused_grants(), "refused": emulator.refused()})),
        ("GET", "stats") => Ok(json!(emulator.stats())),
        _ => Err(ControlError::NoRoute(route.to_owned())),
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(body).map_err(|error| ControlError::Unreadable(error.to_string()))
}
