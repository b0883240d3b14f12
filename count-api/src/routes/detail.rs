//! Answers a counter's number with what each of its parts adds to it, if a request has `detail=shards` or
//! `detail=regions`. A shard is a part of the counter's rows that is counted by itself.

use std::collections::BTreeSet;

use axum::Json;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{CounterKind, Shard, ShardCount};
use utoipa::{IntoParams, ToSchema};

use super::Handles;
use super::chosen::Chosen;
use super::members::FRESH;
use crate::answer::Answer;
use crate::error::Result;
use crate::read::Detailed;
use crate::value::CounterValue;

/// The value of `decided_by`: the deployment decides how many shards a set has.
pub(super) const DEPLOYMENT: &str = "deployment";

/// The query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DetailQuery {
    /// `shards`: also which shards the counter has in this Region, and what stands in each. `regions`: also what each Region adds.
    /// Read from the tables, and not to be kept.
    #[param(inline, example = "shards")]
    pub(super) detail: Option<Detail>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Detail {
    Shards,
    Regions,
}

/// What one counter comes to and, where `detail=shards` was asked for, its shards; where `detail=regions` was, its Regions.
#[derive(Debug, Default, Serialize, ToSchema)]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    shards: Vec<ShardValue>,
    /// What each Region adds, this one first. Absent without `detail=regions`, and where the Region has no name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    regions: Vec<RegionValue>,
}

/// The entry of one Region.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RegionValue {
    /// Its name.
    #[schema(example = "eu")]
    region: String,
    /// What it adds to the counter's value.
    #[schema(example = 42)]
    count: i64,
    /// Whether that is exact.
    #[schema(example = true)]
    exact: bool,
    /// Every event that Kafka had acknowledged in that Region by this moment is in it; milliseconds since the Unix epoch. 0 where no
    /// such moment is known.
    #[schema(example = 1_700_000_000_000_u64)]
    as_of: u64,
    /// Whether `as_of` is as recent as is promised: of another Region it may be ten seconds older than of this one.
    #[schema(example = true)]
    fresh: bool,
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

/// Reads the number of `chosen` and its parts from the tables.
pub(super) async fn detailed(api: &Handles, chosen: &Chosen, detail: Detail) -> Result<axum::response::Response> {
    let id = chosen.id();
    let Detailed { answer, regions, counter } = api.reader.detailed(&id).await?;
    let (kind, value) = (id.name.kind(), CounterValue::new(&chosen.subject, &id.name, answer));
    let detail = match detail {
        Detail::Shards => CounterDetail::by_shard(value, kind, counter.as_ref(), api.shards),
        Detail::Regions => CounterDetail::by_region(value, kind, regions),
    };
    Ok((FRESH, Json(detail)).into_response())
}

impl CounterDetail {
    fn by_region(value: CounterValue, kind: CounterKind, regions: Vec<(String, Answer)>) -> Self {
        let value_of = |(region, Answer { served, fresh, .. }): (String, Answer)| RegionValue {
            region,
            count: served.value(kind),
            exact: served.exact,
            as_of: served.as_of.0,
            fresh,
        };
        Self { value, regions: regions.into_iter().map(value_of).collect(), ..Self::default() }
    }

    fn by_shard(value: CounterValue, kind: CounterKind, counter: Option<&Counter>, shards: ShardCount) -> Self {
        let is_set = kind == CounterKind::Set;
        // The counter may have other shards than the deployment.
        let stored = counter.into_iter().flat_map(|counter| counter.parts.keys().copied());
        let all: BTreeSet<Shard> = shards.all().chain(stored).collect();
        let part = |shard| counter.map_or(0, |counter| counter.part(shard));
        let values = all.into_iter().map(|shard| ShardValue { shard: shard.index(), value: part(shard) });
        Self {
            value,
            decided_by: is_set.then_some(DEPLOYMENT),
            policy: (!is_set).then_some("writer"),
            corrections: Some(counter.map_or(0, |counter| counter.corrections)),
            gap: counter.and_then(|counter| counter.gap).map(Place::stored),
            doubt: counter.into_iter().flat_map(|counter| &counter.doubt).map(|shard| shard.index()).collect(),
            updated_at: counter.map(|counter| counter.updated_at.0),
            shards: values.collect(),
            ..Self::default()
        }
    }
}
