//! A number as it is answered, and its edition, by which clients know it again.

use std::fmt::{self, Display};

use axum::http::HeaderValue;
use tally_core::served::Served;

/// A number as it is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number, whether it is exact, and as of when.
    pub served: Served,
    /// Whether `as_of` is as recent as answers are promised to be.
    pub fresh: bool,
    /// How it was added up; absent of a number of one Region.
    pub summed: Option<Box<Summed>>,
}

/// How an answer was added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summed {
    /// This Region's part.
    pub own: Served,
    /// The Regions whose entries are not fresh, or of which nothing is known.
    pub behind: Vec<String>,
    /// A hash of every entry's version and of the Regions behind. The sum of the versions may come again, and this does not.
    pub hash: u64,
}

impl Answer {
    /// This Region's part of it.
    pub fn own(&self) -> &Served {
        self.summed.as_ref().map_or(&self.served, |summed| &summed.own)
    }

    /// The Regions that make it not fresh.
    pub fn into_behind(self) -> Vec<String> {
        self.summed.map(|summed| summed.behind).unwrap_or_default()
    }
}

/// A state of a count: its version, whether it is exact, and whether it is fresh. It is the ETag of an answer and the id of an
/// event: `57.1`, or `57.1.0` of a count that is not fresh. Behind the version of a count over several Regions is a hash of the
/// version in each, `57-9f.1`: two processes may have read other entries whose versions have the same sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    version: u64,
    /// Absent of a count of one Region.
    hash: Option<u64>,
    exact: bool,
    fresh: bool,
}

impl Edition {
    /// The edition of an answer.
    pub fn of(Answer { served, fresh, summed }: &Answer) -> Self {
        let hash = summed.as_ref().map(|summed| summed.hash);
        Self { version: served.version, hash, exact: served.exact, fresh: *fresh }
    }

    /// The edition written as `text`.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, judged) = text.split_once('.')?;
        let (version, hash) = match version.split_once('-') {
            None => (version, None),
            Some((version, hash)) => (version, Some(u64::from_str_radix(hash, 16).ok()?)),
        };
        let (version, exact, fresh) = (version.parse().ok()?, judged.starts_with('1'), !judged.contains('.'));
        let edition = Self { version, hash, exact, fresh };
        (edition.to_string() == text).then_some(edition)
    }
}

impl fmt::Display for Edition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        if let Some(hash) = self.hash {
            write!(f, "-{hash:x}")?;
        }
        write!(f, ".{}", u8::from(self.exact))?;
        if self.fresh { Ok(()) } else { f.write_str(".0") }
    }
}

/// What is told of each counter, or was seen of it: the id of an event, and the ETag of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Editions(pub(crate) Vec<Option<Edition>>);

impl Editions {
    pub(crate) fn unseen(counters: usize) -> Self {
        Self(vec![None; counters])
    }

    /// What `text` says of so many counters, or of the first of them: counters are only ever added at the end.
    pub(crate) fn parse(text: &str, counters: usize) -> Option<Self> {
        let seen = text.split('_').take(counters + 1);
        let seen = seen.map(|one| if one.is_empty() { Some(None) } else { Edition::parse(one).map(Some) });
        let mut seen = seen.collect::<Option<Vec<_>>>()?;
        if seen.len() > counters {
            return None;
        }
        seen.resize(counters, None);
        Some(Self(seen))
    }
}

impl fmt::Display for Editions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, seen) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str("_")?;
            }
            if let Some(edition) = seen {
                write!(f, "{edition}")?;
            }
        }
        Ok(())
    }
}

/// An edition as an ETag.
pub(crate) fn tag(edition: &(impl Display + ?Sized)) -> HeaderValue {
    HeaderValue::from_str(&format!("W/\"{edition}\"")).expect("letters, digits and signs make a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edition_has_one_spelling() {
        for text in ["7.1", "7.0", "7.1.0", "7.0.0"] {
            assert_eq!(Edition::parse(text).map(|edition| edition.to_string()).as_deref(), Some(text));
        }
        for text in ["", ".", "7", "7.", "7.2", "07.1", "+7.1", "7.1.1", "7.1.", "7.1.0.0", "-1.0"] {
            assert_eq!(Edition::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_seen_comes_back_as_it_went_also_to_counters_that_were_added() {
        for text in ["57.1_3.0", "57.1_", "_3.1", "_"] {
            assert_eq!(Editions::parse(text, 2).unwrap().to_string(), text);
        }
        assert_eq!(Editions::parse("57.1", 3).unwrap().to_string(), "57.1__");
        for text in ["57.1_3.1_1.1", "57", "x_3.1", "57.1 3.1"] {
            assert_eq!(Editions::parse(text, 2), None, "{text}");
        }
    }
}
