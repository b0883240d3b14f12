//! What a deployment was created with.

use async_trait::async_trait;

use crate::definitions::Definitions;
use crate::format::Format;
use crate::ids::ShardCount;
use crate::milestone::Ladder;
use crate::ports::Outcome;

/// The settings that all processes of a deployment share.
#[async_trait]
pub trait DeploymentConfig: Send + Sync {
    /// What the deployment was created with, created now with `shards`, or the default, if it was not. The answer may
    /// differ from `shards`, and then decides. A deployment that states no format states the first one from now on. Safe to
    /// repeat: what is there stays.
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount>;

    /// What the deployment was created with, read consistently; `None` before it was. For processes that only read: they
    /// must not decide what others are about to.
    async fn deployed(&self) -> Outcome<Option<ShardCount>>;

    /// In which format the deployment is written, read consistently; `None` before it was created.
    async fn format(&self) -> Outcome<Option<Format>>;

    /// The same as it was at some moment just before, at half the price: for asking again and again.
    async fn recent_format(&self) -> Outcome<Option<Format>>;

    /// The deployment's counters, read consistently; likes alone where none were defined.
    async fn definitions(&self) -> Outcome<Definitions>;

    /// Replaces the counters `seen` by `to`, which has the same ones first; `false` where others stand. Safe to repeat: a
    /// repetition after a success answers `false`.
    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool>;

    /// The deployment's ladder, read consistently; an empty one where there is none.
    async fn ladder(&self) -> Outcome<Ladder>;

    /// Replaces the ladder `seen` by `to`, which goes on from it; `false` where another stands, or there is no deployment.
    /// Safe to repeat: a repetition after a success answers `false`.
    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool>;
}
