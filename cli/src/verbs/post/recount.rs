//! `tally post recount`: queues all row keys of a post's counters for the service `tally-batch-recount --watch`.

use anyhow::Context;
use tally_core::audit::QueueReason;
use tally_core::ids::{PostId, RowKey};

use super::seen;
use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::Answer;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Recount {
    /// The post, or the hashtag
    #[arg(value_name = "ID")]
    id: PostId,

    /// This counter alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    counter: Vec<String>,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

impl Recount {
    pub(super) async fn run(self) -> anyhow::Result<Answer> {
        let Self { id, counter, writing, of } = self;
        let desk = Desk::open(of).await?;
        let (mut keys, mut plan) = (Vec::new(), Vec::new());
        for counter in seen::chosen(&desk, &id, &counter).await? {
            let found = seen::counter(&desk, &counter, seen::Sources::default()).await?.counter.ok().flatten();
            let shards = seen::shards(&desk, found.as_ref());
            plan.push(format!("queue {} row keys of the counter {} of {id}", shards.len(), counter.name));
            keys.extend(shards.into_iter().map(|shard| RowKey { counter: counter.clone(), shard }));
        }
        let changed = writing.carry_out(&desk, "post recount", plan, async || {
            for key in &keys {
                let now = desk.clock.now();
                desk.recounts.enqueue(key, QueueReason::Asked, now).await.context("cannot queue a row key")?;
            }
            Ok(format!("{} row keys queued: the recount that watches takes them up", keys.len()))
        });
        Ok(changed.await?.into())
    }
}
