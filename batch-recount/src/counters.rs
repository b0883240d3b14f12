//! Which of the deployment's counters a job is about: those named, or all.

use std::collections::BTreeSet;

use anyhow::Context as _;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::{Definition, Definitions};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount};

use crate::calls::Calls;

/// The deployment's counters, in the order in which they were defined.
pub(crate) async fn defined(calls: &Calls, deployment: &Checkpoints) -> anyhow::Result<Definitions> {
    calls.read("read the counters", 1, || deployment.definitions()).await
}

/// Every row key of the counters `named` of `posts`, each once.
pub(crate) fn row_keys(posts: &[PostId], named: &[Definition], shards: ShardCount) -> Vec<RowKey> {
    let counters = posts.iter().flat_map(|post| named.iter().map(|of| (post.clone(), of.name.clone())));
    let counters: BTreeSet<CounterId> = counters.map(|(post, name)| CounterId { post, name }).collect();
    counters.iter().flat_map(|counter| RowKey::all(counter, shards)).collect()
}

/// Those of `names`, or all where none is named.
///
/// # Errors
/// A name that none of them has.
pub(crate) fn chosen(defined: &Definitions, names: &[String]) -> anyhow::Result<Vec<Definition>> {
    if names.is_empty() {
        return Ok(defined.iter().cloned().collect());
    }
    names
        .iter()
        .map(|name| defined.named(name).cloned().with_context(|| format!("there is no counter {name}")))
        .collect()
}
