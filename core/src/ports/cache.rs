//! The cache of served counts: never the truth, never replaced by an older value.

use async_trait::async_trait;

use super::Outcome;
use crate::ids::CounterId;
use crate::served::Served;

/// What the cache holds for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// A count.
    Hit(Served),
    /// Nothing, or a fill somebody has under way.
    Miss,
}

/// The right to fill one missing key, until it expires or an update takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillToken(pub String);

/// The cache. It may be slow, empty or away: no caller's answer depends on it.
#[async_trait]
pub trait Cache: Send + Sync {
    /// What is cached, in the order asked.
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>>;

    /// Replaces values that are present and older; a fill under way counts as present and older. Safe to repeat: a
    /// version never goes back. Answers how many were replaced.
    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize>;

    /// Asks for the right to fill a missing key; `None` while somebody else has it or a value is there.
    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>>;

    /// Writes a value read from the table *after* the token was given, if the token is still there. Safe to repeat: the
    /// first copy takes the token. Answers whether it was written.
    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool>;
}
