//! A counter's number with what stands in each of its shards.

use std::collections::BTreeSet;

use axum::Json;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{CounterKind, Shard};
use utoipa::{IntoParams, ToSchema};

use super::Handles;
use super::chosen::Chosen;
use super::members::FRESH;
use crate::error::Problem;
use crate::value::CounterValue;

/// What decides how many shards a set has.
pub(super) const DEPLOYMENT: &str = "deployment";

/// The query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DetailQuery {
    /// `shards`: also which shards the counter has, and what stands in each. Read from the tables, and not to be kept.
    #[param(inline, example = "shards")]
    pub(super) detail: Option<Detail>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Detail {
    Shards,
}

/// What one counter comes to and, where `detail=shards` was asked for, its shards.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterDetail {
    #[serde(flatten)]
    value: CounterValue,
    /// What decided how many shards a set has: `deployment`. Absent without `detail=shards`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "deployment")]
    decided_by: Option<&'static str>,
    /// Of a sum: what decides how its events are spread. Absent without `detail=shards`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "writer")]
    policy: Option<&'static str>,
    /// How many corrections by recounts are in, and rows that could not be read. Absent without `detail=shards`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 0)]
    corrections: Option<u64>,
    /// The version at which the last loss was announced that the counter has anything behind; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 40)]
    gap: Option<u64>,
    /// Shards with rows that cannot be read: the counter is not exact until a recount could. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!([3]))]
    doubt: Vec<u16>,
    /// When the counter was written; milliseconds since the Unix epoch. Absent of a counter that was never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 1_700_000_000_000_u64)]
    updated_at: Option<u64>,
    /// What stands in each shard. Absent without `detail=shards`.
    #[schema(required = false)]
    shards: Vec<ShardValue>,
}

/// One shard of a counter.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShardValue {
    /// Its number, from 0.
    #[schema(example = 3)]
    shard: u16,
    /// What it adds to the counter's value.
    #[schema(example = 42)]
    value: i64,
}

/// The number of `chosen` and its shards, from the tables.
pub(super) async fn detailed(api: &Handles, chosen: &Chosen) -> Result<axum::response::Response, Problem> {
    let id = chosen.id();
    let (count, counter) = api.reader.detailed(&id).await?;
    let is_set = id.name.kind() == CounterKind::Set;
    let detail = CounterDetail {
        value: CounterValue::new(&chosen.subject, &id.name, count),
        decided_by: is_set.then_some(DEPLOYMENT),
        policy: (!is_set).then_some("writer"),
        corrections: Some(counter.as_ref().map_or(0, |counter| counter.corrections)),
        gap: counter.as_ref().and_then(|counter| counter.gap).map(Place::stored),
        doubt: counter.iter().flat_map(|counter| &counter.doubt).map(|shard| shard.index()).collect(),
        updated_at: counter.as_ref().map(|counter| counter.updated_at.0),
        shards: values(counter.as_ref(), api.shards.all()),
    };
    Ok((FRESH, Json(detail)).into_response())
}

/// What stands in each of `shards`, and in those besides that the counter has.
fn values(counter: Option<&Counter>, shards: impl Iterator<Item = Shard>) -> Vec<ShardValue> {
    let stored = counter.into_iter().flat_map(|counter| counter.parts.keys().copied());
    let all: BTreeSet<Shard> = shards.chain(stored).collect();
    let value = |shard| counter.map_or(0, |counter| counter.part(shard));
    all.into_iter().map(|shard| ShardValue { shard: shard.index(), value: value(shard) }).collect()
}
