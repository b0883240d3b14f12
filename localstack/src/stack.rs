//! Carries out what people ask for on the local stack's page, such as to kill a service or to put a count wrong: each
//! action is the real thing, done the way an operator would do it. It also counts what the page and chaos did on
//! purpose, for the end of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use async_trait::async_trait;
use parking_lot::Mutex;
use tally_adapters::dynamodb::inject_drift;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, PostId};

use crate::local::Local;
use crate::page::{Command, Refusal, Snapshot, Stack};

/// One thing done to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Killed(&'static str),
    ShardSplit,
    ShardsRolled,
    CacheEmptied,
    CacheStopped,
    DriftInjected,
    RecountAsked,
    MirrorCut,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed(service) => return write!(f, "{service} killed"),
            Self::ShardSplit => "stream shard split",
            Self::ShardsRolled => "stream shards rolled",
            Self::CacheEmptied => "cache emptied",
            Self::CacheStopped => "cache stopped",
            Self::DriftInjected => "drift injected",
            Self::RecountAsked => "recount asked for",
            Self::MirrorCut => "mirror cut",
        })
    }
}

/// How often each was done.
#[derive(Debug, Default)]
pub(crate) struct Happened(Mutex<BTreeMap<Deed, u64>>);

impl Happened {
    pub(crate) fn note(&self, deed: Deed) {
        *self.0.lock().entry(deed).or_default() += 1;
    }

    /// What was done and, by the `faults` of the store, which of its requests failed on purpose: nothing where nothing was.
    pub(crate) fn lines(&self, faults: &BTreeMap<String, BTreeMap<String, u64>>) -> Vec<String> {
        let deeds = self.0.lock();
        let mut failed = BTreeMap::<&str, u64>::new();
        for (fault, count) in faults.values().flatten() {
            *failed.entry(fault).or_default() += count;
        }
        let done = list(deeds.iter().map(|(deed, count)| (deed.to_string(), *count)));
        let failed = list(failed.into_iter().map(|(fault, count)| (fault.replace('_', " "), count)));
        let line = |name: &str, text: String| (!text.is_empty()).then(|| format!("  {name:<12} {text}"));
        [line("on purpose", done), line("requests", failed)].into_iter().flatten().collect()
    }
}

fn list(counted: impl Iterator<Item = (String, u64)>) -> String {
    counted.map(|(what, count)| format!("{what} {count}\u{d7}")).collect::<Vec<_>>().join(", ")
}

impl Local {
    fn kill(&self, name: &str) -> anyhow::Result<String> {
        let Some(service) =
            self.regions().flat_map(|region| region.services.all()).find(|service| service.name == name)
        else {
            bail!(Refusal(format!("there is no service `{name}`")));
        };
        service.kill();
        self.happened.note(Deed::Killed(service.name));
        Ok(format!("{name} was killed as in a crash: it starts again in a second, from its checkpoints"))
    }

    fn switch_cache(&self, on: bool) -> anyhow::Result<String> {
        let cache = &self.engines.cache;
        if !cache.is_embedded() {
            bail!(Refusal("the cache is a real Redis: stop and start it where it runs".to_owned()));
        }
        cache.switch(on);
        if !on {
            self.happened.note(Deed::CacheStopped);
        }
        Ok(if on { "the cache is back, empty" } else { "the cache is gone: counts are read from the table" }.to_owned())
    }

    /// Puts a post's counter wrong: one shard and the total, and the version with them.
    async fn inject(&self, post: &str, by: i64) -> anyhow::Result<String> {
        let post = PostId::new(post).map_err(|error| Refusal(format!("a post: {error}")))?;
        let id = CounterId::likes(post.clone());
        if by == 0 || by.unsigned_abs() > 1_000_000 {
            bail!(Refusal("drift is at most a million likes either way, and not none".to_owned()));
        }
        let store = &self.engines.store;
        if !inject_drift(&store.tables.connection, &post, by).await.context("cannot change the counter")? {
            bail!(Refusal(format!("{post} has never been liked, so it has no counter")));
        }
        self.injected.fetch_add(by.unsigned_abs(), Ordering::Relaxed);
        self.happened.note(Deed::DriftInjected);
        // The next like of the post would bring the number to the cache; a person should not have to wait for one.
        if let Ok(Some(config)) = store.tables.changes.config().await {
            self.engines.cache.forget(partition_of(id.post.as_bytes(), config.partitions), &id);
        }
        Ok(format!("{post} is off by {by:+}: a recount will find out"))
    }

    async fn recount(&self) -> anyhow::Result<String> {
        self.engines.store.tables.recounts.enqueue_audit(self.clock.now()).await?;
        self.happened.note(Deed::RecountAsked);
        Ok("a recount of everything is queued: it begins within seconds".to_owned())
    }

    fn split(&self) -> anyhow::Result<String> {
        let store = &self.engines.store;
        let Some(emulator) = &store.emulator else {
            bail!(Refusal("DynamoDB is a real one, and splits its stream shards itself".to_owned()));
        };
        let children = emulator.split_shard(store.likes(), None, None).map_err(|error| Refusal(error.to_string()))?;
        self.happened.note(Deed::ShardSplit);
        Ok(format!("the busiest stream shard was split: {} children", children.len()))
    }

    fn mirror(&self, copies: bool) -> anyhow::Result<String> {
        let Some(abroad) = &self.abroad else {
            bail!(Refusal("there is one Region: start it with --regions 2".to_owned()));
        };
        abroad.mirror.send_replace(copies);
        if !copies {
            self.happened.note(Deed::MirrorCut);
        }
        let healed = "the mirror copies again, first what waited";
        let cut = "the mirror is cut: each Region goes on with what it knows of the other";
        Ok(if copies { healed } else { cut }.to_owned())
    }

    fn pause(&self, paused: bool) -> anyhow::Result<String> {
        if self.load.is_none() {
            bail!(Refusal("there is no load".to_owned()));
        }
        self.regions().for_each(|region| _ = region.paused.send_replace(paused));
        Ok(if paused { "the load is paused" } else { "the load goes on" }.to_owned())
    }
}

#[async_trait]
impl Stack for Local {
    fn snapshot(&self) -> Snapshot {
        self.board.lock().clone()
    }

    async fn act(&self, command: Command) -> anyhow::Result<String> {
        match command {
            Command::Kill { part } => self.kill(&part),
            Command::StopCache => self.switch_cache(false),
            Command::StartCache => self.switch_cache(true),
            Command::InjectDrift { post_id, by } => self.inject(&post_id, by).await,
            Command::Recount => self.recount().await,
            Command::SplitShard => self.split(),
            Command::PauseLoad { paused } => self.pause(paused),
            Command::CutMirror => self.mirror(false),
            Command::HealMirror => self.mirror(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_says_what_was_killed_split_and_failed() {
        let happened = Happened::default();
        for deed in
            [Deed::Killed("consumer"), Deed::ShardSplit, Deed::Killed("consumer"), Deed::Killed("change-streamer")]
        {
            happened.note(deed);
        }
        let count = |fault: &str, count| (fault.to_owned(), count);
        let faults = BTreeMap::from([
            ("PutItem".to_owned(), BTreeMap::from([count("drop_reply", 1), count("throttle", 2)])),
            ("Query".to_owned(), BTreeMap::from([count("throttle", 3)])),
        ]);
        let lines = happened.lines(&faults);
        assert_eq!(
            lines,
            [
                "  on purpose   change-streamer killed 1\u{d7}, consumer killed 2\u{d7}, stream shard split 1\u{d7}",
                "  requests     drop reply 1\u{d7}, throttle 5\u{d7}",
            ]
        );
        assert_eq!(Happened::default().lines(&BTreeMap::new()), [""; 0]);
    }
}
