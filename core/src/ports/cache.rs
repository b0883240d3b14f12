//! The cache of served counts. It is never the truth, and a value in it is replaced only as `Served::replaces` says.

use async_trait::async_trait;

use super::Outcome;
use crate::ids::CounterId;
use crate::served::Served;

/// What the cache holds for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// A count.
    Hit(Served),
    /// Nothing, or a fill under way.
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

    /// Replaces the values present where [`Served::replaces`] says so, and fills under way. Safe to repeat: a value does not
    /// replace itself. Answers how many were replaced.
    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize>;

    /// Asks for the right to fill a missing key; `None` while another caller has it or a value is there.
    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>>;

    /// Writes a value read from the table *after* the token was given, if the token is still there. Safe to repeat: the
    /// first copy takes the token. Answers whether it was written.
    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool>;
}
