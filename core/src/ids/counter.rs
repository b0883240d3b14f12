//! What is counted: a post and the counter's name, and how the two are written as a key of the counts table.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::{BadId, PostId, Region};

/// What stands between post and counter in a key of the counts table: no id and no name holds it.
const SEPARATOR: char = '\u{1f}';
/// What a sum's name begins with where it is stored, so that a key alone tells a counter's kind.
const SUM: char = '+';
/// What stands before a Region in the name of that Region's entry of a counter: no name holds it.
const REGION: char = '@';

/// What the rows of a counter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterKind {
    /// Each row is one member: adding it twice counts once, and it can be taken back.
    Set,
    /// Each row is what one Kafka partition has added.
    Sum,
}

/// The name of a counter, `[a-z][a-z0-9_]{0,31}`, with its kind. The default is the set `likes`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterName(
    /// The stored form, `retweets` or `+views`; `None` for likes, which costs nothing to clone, compare or hash.
    Option<Arc<str>>,
);

/// Why a text is no name of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadCounterName {
    /// It is not of the form `[a-z][a-z0-9_]{0,31}`.
    #[error("a counter's name is a lower-case letter and up to 31 more letters, digits or underscores")]
    Malformed,
    /// `likes`, where a stored key or a sum's name has no place for it.
    #[error("likes is a set, and stored without its name")]
    Likes,
}

impl CounterName {
    /// The counter that every post has.
    pub const LIKES: Self = Self(None);
    const LIKES_TEXT: &'static str = "likes";

    /// The counter `name` of a kind.
    pub fn new(name: &str, kind: CounterKind) -> Result<Self, BadCounterName> {
        check(name)?;
        match kind {
            CounterKind::Set if name == Self::LIKES_TEXT => Ok(Self::LIKES),
            CounterKind::Set => Ok(Self(Some(name.into()))),
            CounterKind::Sum if name == Self::LIKES_TEXT => Err(BadCounterName::Likes),
            CounterKind::Sum => Ok(Self(Some(format!("{SUM}{name}").into()))),
        }
    }

    /// The counter of a stored form, which likes do not have: their keys are written without a name.
    pub(super) fn from_stored(stored: &str) -> Result<Self, BadCounterName> {
        let name = stored.strip_prefix(SUM).unwrap_or(stored);
        check(name)?;
        if name == Self::LIKES_TEXT {
            return Err(BadCounterName::Likes);
        }
        Ok(Self(Some(stored.into())))
    }

    /// What follows the post in a stored key; `None` for likes.
    pub(super) fn stored(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The name with its kind in front of it, as keys of the cache and log lines state it: `likes`, `retweets`, `+views`.
    pub fn marked(&self) -> &str {
        self.stored().unwrap_or(Self::LIKES_TEXT)
    }

    /// The counter of a [marked](Self::marked) name.
    pub fn from_marked(marked: &str) -> Result<Self, BadCounterName> {
        if marked == Self::LIKES_TEXT { Ok(Self::LIKES) } else { Self::from_stored(marked) }
    }

    /// The name alone.
    pub fn as_str(&self) -> &str {
        let marked = self.marked();
        marked.strip_prefix(SUM).unwrap_or(marked)
    }

    /// The name of another Region's entry of this counter: `@eu`, `retweets@eu`, `+views@eu`. No key is parsed as such a name, so a
    /// scan of all counters passes these entries over.
    #[must_use]
    pub fn in_region(&self, region: &Region) -> Self {
        Self(Some(format!("{}{REGION}{region}", self.stored().unwrap_or_default()).into()))
    }

    /// The Region whose entry this is; `None` for a counter of this deployment.
    pub fn region(&self) -> Option<&str> {
        self.stored()?.split_once(REGION).map(|(_, region)| region)
    }

    /// What its rows are.
    pub fn kind(&self) -> CounterKind {
        if self.marked().starts_with(SUM) { CounterKind::Sum } else { CounterKind::Set }
    }
}

fn check(name: &str) -> Result<(), BadCounterName> {
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
    let goes_on = bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if begins && goes_on && name.len() <= 32 { Ok(()) } else { Err(BadCounterName::Malformed) }
}

/// Likes add nothing to the hash of what they belong to.
impl Hash for CounterName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(stored) = &self.0 {
            stored.hash(state);
        }
    }
}

impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.marked())
    }
}

/// One counter of one post. Cheap to clone, compare and hash, and likes cost no more than their post's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId {
    /// What is counted for.
    pub post: PostId,
    /// Which of its counters.
    pub name: CounterName,
}

/// Why a key of the counts table is no counter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadCounterId {
    /// What stands before the separator is no post id.
    #[error("a counter's post: {0}")]
    BadPost(#[from] BadId),
    /// What stands behind it is no name.
    #[error("{0}")]
    BadName(#[from] BadCounterName),
}

impl CounterId {
    /// The likes of `post`.
    pub fn likes(post: PostId) -> Self {
        Self { post, name: CounterName::LIKES }
    }

    /// Another Region's entry of this counter.
    #[must_use]
    pub fn in_region(&self, region: &Region) -> Self {
        Self { post: self.post.clone(), name: self.name.in_region(region) }
    }

    /// The counter's key in the counts table: the post's id for likes; others have their name behind a U+001F.
    pub fn stored(&self) -> Cow<'_, str> {
        match self.name.stored() {
            None => Cow::Borrowed(&self.post),
            Some(name) => Cow::Owned(format!("{}{SEPARATOR}{name}", self.post)),
        }
    }
}

impl From<PostId> for CounterId {
    fn from(post: PostId) -> Self {
        Self::likes(post)
    }
}

/// Reads a key of the counts table.
impl FromStr for CounterId {
    type Err = BadCounterId;

    fn from_str(stored: &str) -> Result<Self, BadCounterId> {
        let Some((post, name)) = stored.split_once(SEPARATOR) else { return Ok(Self::likes(PostId::new(stored)?)) };
        Ok(Self { post: PostId::new(post)?, name: CounterName::from_stored(name)? })
    }
}

/// For people: the post alone for likes, `p +views` for others. Keys are written by [`stored`](Self::stored).
impl fmt::Display for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.stored() {
            None => f.write_str(&self.post),
            Some(name) => write!(f, "{} {name}", self.post),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(id: &str) -> PostId {
        PostId::new(id).unwrap()
    }

    #[test]
    fn a_name_is_a_letter_and_up_to_31_letters_digits_or_underscores() {
        for name in ["a", "likes", "retweets", "a_1", &"z".repeat(32)] {
            assert_eq!(CounterName::new(name, CounterKind::Set).unwrap().as_str(), name);
        }
        for name in ["", "A", "1a", "_a", "+views", "a.b", "a-b", "a#", "a b", "é", &"z".repeat(33)] {
            assert_eq!(CounterName::new(name, CounterKind::Set), Err(BadCounterName::Malformed), "{name}");
            assert_eq!(CounterName::new(name, CounterKind::Sum), Err(BadCounterName::Malformed), "{name}");
        }
    }

    #[test]
    fn likes_are_the_default_and_no_sum() {
        assert_eq!(CounterName::new("likes", CounterKind::Set), Ok(CounterName::default()));
        assert_eq!(CounterName::new("likes", CounterKind::Sum), Err(BadCounterName::Likes));
        assert_eq!(CounterName::LIKES.kind(), CounterKind::Set);
    }

    #[test]
    fn a_key_of_the_counts_table_is_the_post_for_likes_and_names_every_other_counter() {
        let of = |name, kind| CounterId { post: post("p"), name: CounterName::new(name, kind).unwrap() };
        for (counter, stored) in [
            (CounterId::likes(post("p")), "p"),
            (of("retweets", CounterKind::Set), "p\u{1f}retweets"),
            (of("views", CounterKind::Sum), "p\u{1f}+views"),
        ] {
            assert_eq!(counter.stored(), stored);
            assert_eq!(stored.parse(), Ok(counter));
        }
        for foreign in ["p\u{1f}likes", "p\u{1f}+likes", "p\u{1f}", "p\u{1f}a\u{1f}b", "\u{1f}a", "", "p\u{1f}++a"] {
            assert!(foreign.parse::<CounterId>().is_err(), "{foreign:?}");
        }
    }

    #[test]
    fn the_entry_of_another_region_has_a_key_of_its_own_that_is_no_counter_of_this_deployment() {
        let region = Region::new("eu").unwrap();
        let of = |name, kind| CounterId { post: post("p"), name: CounterName::new(name, kind).unwrap() };
        for (counter, stored) in [
            (CounterId::likes(post("p")), "p\u{1f}@eu"),
            (of("retweets", CounterKind::Set), "p\u{1f}retweets@eu"),
            (of("views", CounterKind::Sum), "p\u{1f}+views@eu"),
        ] {
            let entry = counter.in_region(&region);
            assert_eq!(entry.stored(), stored);
            assert_eq!((entry.name.kind(), entry.name.region()), (counter.name.kind(), Some("eu")));
            assert_eq!(counter.name.region(), None);
            assert!(stored.parse::<CounterId>().is_err());
        }
    }

    #[test]
    fn likes_hash_as_their_post_does() {
        use std::hash::BuildHasher;
        let hasher = foldhash::fast::FixedState::default();
        assert_eq!(hasher.hash_one(CounterId::likes(post("p"))), hasher.hash_one(post("p")));
    }
}
