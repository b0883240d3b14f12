//! The counters that the local stack begins with: likes, retweets, replies and views of posts, and uses of hashtags. A
//! deployment that has defined counters of its own keeps them as they are.

use std::collections::BTreeMap;

use anyhow::Context as _;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::backoff::Backoff;
use tally_core::definitions::{Definition, Definitions, Entry};
use tally_core::ids::{CounterId, PostId};
use tally_service::Host;

/// A counter of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    Likes,
    Retweets,
    Replies,
    Views,
    Uses,
}

impl Counted {
    pub(crate) const ALL: [Self; 5] = [Self::Likes, Self::Retweets, Self::Replies, Self::Views, Self::Uses];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Likes => "likes",
            Self::Retweets => "retweets",
            Self::Replies => "replies",
            Self::Views => "views",
            Self::Uses => "uses",
        }
    }

    /// How it is defined here; likes are there without it.
    fn entry(self) -> Option<Entry> {
        let set = |add, remove| Entry::set(self.name(), add, Some(remove));
        let text = |text: &str| Some(text.to_owned());
        match self {
            Self::Likes => None,
            Self::Retweets => Some(set("retweet", "unretweet")),
            Self::Replies => Some(Entry { member: text("reply_id"), ..set("reply", "unreply") }),
            Self::Views => Some(Entry::sum(self.name(), "view", None)),
            // Each post that has the hashtag counts once.
            Self::Uses => Some(Entry { subject: text("hashtag"), member: text("post_id"), ..set("tag", "untag") }),
        }
    }
}

/// All of them as a list.
fn wanted() -> anyhow::Result<Definitions> {
    let entries: Vec<Entry> = Counted::ALL.into_iter().filter_map(Counted::entry).collect();
    Definitions::new(&entries).context("the local stack's own counters")
}

/// Those of them that a deployment has, defined as they are here.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// All that the deployment has.
    pub(crate) all: Definitions,
    /// Those of the load that the deployment defines exactly as the load expects them.
    pub(crate) ours: BTreeMap<Counted, Definition>,
}

impl Counters {
    fn of(stands: &Definitions) -> anyhow::Result<Self> {
        let wanted = wanted()?;
        let ours = Counted::ALL.into_iter().filter_map(|counted| {
            let its = stands.named(counted.name()).filter(|its| wanted.named(counted.name()) == Some(its))?;
            Some((counted, its.clone()))
        });
        Ok(Self { all: stands.clone(), ours: ours.collect() })
    }

    /// The counter of a post or a hashtag, where it is defined.
    pub(crate) fn id(&self, counted: Counted, subject: &PostId) -> Option<CounterId> {
        let name = self.ours.get(&counted)?.name.clone();
        Some(CounterId { post: subject.clone(), name })
    }
}

/// Defines them where nothing is defined. Safe to repeat: a list that stands stays as it is.
///
/// # Errors
/// A store that cannot be had, and a stop.
pub(crate) async fn define(deployment: &Checkpoints, host: &Host) -> anyhow::Result<Counters> {
    let wanted = wanted()?;
    let stands = host
        .wait_for("counters", Backoff::STORE, || async {
            let seen = deployment.definitions().await?;
            if seen != Definitions::likes_alone() {
                return Ok(seen);
            }
            if deployment.define(&seen, &wanted).await? {
                return Ok(wanted.clone());
            }
            // Another process was faster, or this call was repeated after it had succeeded.
            deployment.definitions().await
        })
        .await?;
    Counters::of(&stands)
}

#[cfg(test)]
pub(crate) mod tests {
    use tally_adapters::dynamodb::Checkpoints;
    use tally_service::Host;
    use tally_testkit::Store;

    use super::*;

    /// All of them.
    pub(crate) fn all() -> Counters {
        Counters::of(&wanted().unwrap()).unwrap()
    }

    async fn deployed() -> Checkpoints {
        let deployment = Checkpoints::new(&Store::start().await.connection);
        deployment.config(None).await.unwrap();
        deployment
    }

    #[tokio::test]
    async fn counters_are_defined_once_and_a_second_start_finds_them() {
        let deployment = deployed().await;
        for _ in 0..2 {
            let counters = define(&deployment, &Host::new("test")).await.unwrap();
            assert!(counters.ours.into_keys().eq(Counted::ALL));
            assert_eq!(deployment.definitions().await.unwrap().iter().len(), Counted::ALL.len());
        }
        let all = all();
        let marked = |counted| all.ours[&counted].name.marked();
        assert_eq!(Counted::ALL.map(marked), ["likes", "retweets", "replies", "+views", "uses"]);
    }

    #[tokio::test]
    async fn a_list_that_stands_stays_and_what_it_defines_otherwise_is_not_ours() {
        let deployment = deployed().await;
        let views = Entry { add: "see".to_owned(), ..Counted::Views.entry().unwrap() };
        let other = Definitions::new(&[Counted::Retweets.entry().unwrap(), views]).unwrap();
        assert!(deployment.define(&Definitions::likes_alone(), &other).await.unwrap());
        let counters = define(&deployment, &Host::new("test")).await.unwrap();
        assert_eq!(deployment.definitions().await, Ok(other));
        assert!(counters.ours.into_keys().eq([Counted::Likes, Counted::Retweets]));
    }
}
