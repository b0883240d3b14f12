//! What the API answers for a counter: the number, whether it is exact and as of when, and whether it is fresh. Its
//! *edition* identifies that state; as an ETag it shows clients that they already have the answer.

use std::fmt::{self, Display};

use axum::http::HeaderValue;
use tally_core::served::Served;

/// The answer for a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number, whether it is exact, and as of when.
    pub served: Served,
    /// Whether `as_of` is at most `--fresh-within` old.
    pub fresh: bool,
    /// The parts of a sum over several Regions; `None` with one Region.
    pub summed: Option<Box<Summed>>,
}

/// The parts of an answer over several Regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summed {
    /// This Region's part.
    pub own: Served,
    /// The Regions whose entries are not fresh.
    pub behind: Vec<String>,
    /// A hash of every entry's version and of the Regions behind. Different entries may have versions with the same
    /// sum, but not the same hash.
    pub hash: u64,
}

impl Answer {
    /// Returns this Region's part.
    pub fn own(&self) -> &Served {
        self.summed.as_ref().map_or(&self.served, |summed| &summed.own)
    }

    /// Returns the Regions whose entries are not fresh.
    pub fn into_behind(self) -> Vec<String> {
        self.summed.map(|summed| summed.behind).unwrap_or_default()
    }
}

/// The state of a count: its version, whether it is exact, and whether it is fresh. It is the ETag of an answer and the
/// id of an event: `57.1`, or `57.1.0` if the count is not fresh. With several Regions a hash of the version in each
/// follows the version, `57-9f.1`, because different entries may have versions with the same sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    version: u64,
    /// Absent with one Region.
    hash: Option<u64>,
    exact: bool,
    fresh: bool,
}

impl Edition {
    /// Returns the edition of an answer.
    pub fn of(Answer { served, fresh, summed }: &Answer) -> Self {
        let hash = summed.as_ref().map(|summed| summed.hash);
        Self { version: served.version, hash, exact: served.exact, fresh: *fresh }
    }

    /// Parses an edition; `None` unless `text` is exactly how it is written.
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

/// The last edition of each counter that a client has: the id of an event, or the ETag of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Editions(pub(crate) Vec<Option<Edition>>);

impl Editions {
    /// Parses the editions of `counters` counters. `text` may name only the first of them, since counters are only ever
    /// added at the end.
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

/// Returns an edition as an ETag.
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
