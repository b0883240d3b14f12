//! Which of the deployment's counters a job is about: those named, or all.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::{Definition, Definitions, MemberField, SubjectField};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, ShardCount};

use crate::calls::Calls;

/// The deployment's counters, in the order in which they were defined.
pub(crate) async fn defined(calls: &Calls, deployment: &Checkpoints) -> anyhow::Result<Definitions> {
    let found = calls.persist("read the counters", || deployment.definitions()).await?;
    calls.read_items(1);
    Ok(found)
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

/// The sets whose members of one subject, or of one user, can be found by their rows: those named, or all that there are.
///
/// # Errors
/// A counter that is named and has no such members.
pub(crate) fn sets(defined: &Definitions, names: &[String], are_users: bool) -> anyhow::Result<Vec<Definition>> {
    let mut sets = Vec::new();
    for definition in chosen(defined, names)? {
        match unfit(&definition, are_users) {
            // A hashtag may be called what a post is called.
            None if names.is_empty() && !are_users && definition.subject != SubjectField::Post => {}
            None => sets.push(definition),
            Some(why) if !names.is_empty() => bail!("counter {} cannot be erased from: {why}", definition.name),
            Some(why) => tracing::warn!(counter = %definition.name, why, "left as it is"),
        }
    }
    Ok(sets)
}

fn unfit(definition: &Definition, are_users: bool) -> Option<&'static str> {
    if definition.kind() == CounterKind::Sum {
        Some("it is a sum, which has no members")
    } else if are_users && definition.member != MemberField::User {
        Some("its members are no users")
    } else {
        None
    }
}
