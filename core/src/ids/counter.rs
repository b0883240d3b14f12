//! A counter's id (the post or other subject, and the counter's name), and its key in the table `like_counts`.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::{BadId, PostId, Region};

/// Separates post and counter in a key of the table. No id and no name has it.
const SEPARATOR: char = '\u{1f}';
/// The first character of a sum's stored name, so that a key alone tells the kind of a counter.
const SUM: char = '+';
/// Separates counter and Region in the name of another Region's entry. No name has it.
const REGION: char = '@';

/// Whether a counter is a set or a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterKind {
    /// Each row is a member: adding it twice counts once, and it can be removed.
    Set,
    /// Each row is a cell, which holds what one Kafka partition has added.
    Sum,
}

/// The name of a counter, `[a-z][a-z0-9_]{0,31}`, with its kind. The default is the set `likes`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterName(
    /// The stored form, `retweets` or `+views`; `None` for likes, which are then cheap to clone, compare and hash.
    Option<Arc<str>>,
);

/// Why a text is no counter's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadCounterName {
    /// It is not of the form `[a-z][a-z0-9_]{0,31}`.
    #[error("a counter's name is a lower-case letter and up to 31 more letters, digits or underscores")]
    Malformed,
    /// It is `likes`, which is never stored in a key and never names a sum.
    #[error("likes is a set, and stored without its name")]
    Likes,
}

impl CounterName {
    /// The counter that every post has.
    pub const LIKES: Self = Self(None);
    const LIKES_TEXT: &'static str = "likes";

    /// Returns the name of a counter of a kind.
    pub fn new(name: &str, kind: CounterKind) -> Result<Self, BadCounterName> {
        check(name)?;
        match kind {
            CounterKind::Set if name == Self::LIKES_TEXT => Ok(Self::LIKES),
            CounterKind::Set => Ok(Self(Some(name.into()))),
            CounterKind::Sum if name == Self::LIKES_TEXT => Err(BadCounterName::Likes),
            CounterKind::Sum => Ok(Self(Some(format!("{SUM}{name}").into()))),
        }
    }

    /// Reads a stored name. Likes have none.
    pub(super) fn from_stored(stored: &str) -> Result<Self, BadCounterName> {
        let name = stored.strip_prefix(SUM).unwrap_or(stored);
        check(name)?;
        if name == Self::LIKES_TEXT {
            return Err(BadCounterName::Likes);
        }
        Ok(Self(Some(stored.into())))
    }

    /// Returns what follows the post in a stored key; `None` for likes.
    pub(super) fn stored(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns the name with its kind, as cache keys and log lines have it: `likes`, `retweets`, `+views`.
    pub fn marked(&self) -> &str {
        self.stored().unwrap_or(Self::LIKES_TEXT)
    }

    /// Reads a [marked](Self::marked) name.
    pub fn from_marked(marked: &str) -> Result<Self, BadCounterName> {
        if marked == Self::LIKES_TEXT { Ok(Self::LIKES) } else { Self::from_stored(marked) }
    }

    /// Returns the name without its kind.
    pub fn as_str(&self) -> &str {
        let marked = self.marked();
        marked.strip_prefix(SUM).unwrap_or(marked)
    }

    /// Returns the name of another Region's entry of this counter: `@eu`, `retweets@eu`, `+views@eu`. No key can be
    /// read as such a name, so a scan of all counters skips these entries.
    #[must_use]
    pub fn in_region(&self, region: &Region) -> Self {
        Self(Some(format!("{}{REGION}{region}", self.stored().unwrap_or_default()).into()))
    }

    /// Returns the Region of an entry; `None` for a counter of this deployment.
    pub fn region(&self) -> Option<&str> {
        self.stored()?.split_once(REGION).map(|(_, region)| region)
    }

    /// Returns whether it is a set or a sum.
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

/// Adds nothing for likes, so that they hash like their post.
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

/// One counter of one subject. Cheap to clone, compare and hash; likes cost no more than their post's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId {
    /// The subject: a post, or a hashtag.
    pub post: PostId,
    /// The name of the counter.
    pub name: CounterName,
}

/// Why a key of the table `like_counts` is no counter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadCounterId {
    /// The text before the separator is no post id.
    #[error("a counter's post: {0}")]
    BadPost(#[from] BadId),
    /// The text behind the separator is no counter's name.
    #[error("{0}")]
    BadName(#[from] BadCounterName),
}

impl CounterId {
    /// Returns the counter of the likes of `post`.
    pub fn likes(post: PostId) -> Self {
        Self { post, name: CounterName::LIKES }
    }

    /// Returns the id of another Region's entry of this counter.
    #[must_use]
    pub fn in_region(&self, region: &Region) -> Self {
        Self { post: self.post.clone(), name: self.name.in_region(region) }
    }

    /// Returns the key in the table: the post's id for likes; for others the post, a U+001F and the name.
    pub fn stored(&self) -> Cow<'_, str> {
        match self.name.stored() {
            None => Cow::Borrowed(&self.post),
            Some(name) => Cow::Owned(format!("{}{SEPARATOR}{name}", self.post)),
        }
    }
}

/// Reads a key of the table.
impl FromStr for CounterId {
    type Err = BadCounterId;

    fn from_str(stored: &str) -> Result<Self, BadCounterId> {
        let Some((post, name)) = stored.split_once(SEPARATOR) else { return Ok(Self::likes(PostId::new(stored)?)) };
        Ok(Self { post: PostId::new(post)?, name: CounterName::from_stored(name)? })
    }
}

/// Writes a text for people: the post alone for likes, `p +views` for others. [`stored`](Self::stored) writes keys.
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

    fn of(name: &str, kind: CounterKind) -> CounterId {
        CounterId { post: post("p"), name: CounterName::new(name, kind).unwrap() }
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
