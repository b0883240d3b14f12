//! A region: where a producer says that an event came from, or the AWS Region of a deployment.

use std::fmt;
use std::sync::Arc;

/// The longest region, in bytes.
const MOST: usize = 32;

/// A region, `[a-z0-9-]{1,32}`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(Arc<str>);

impl Region {
    /// Reads a region. Returns `None` where the text has another form.
    pub fn new(text: &str) -> Option<Self> {
        Self::is_one(text).then(|| Self(text.into()))
    }

    /// Returns whether `text` is a region.
    pub fn is_one(text: &str) -> bool {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        (1..=MOST).contains(&text.len()) && text.bytes().all(fits)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_1_to_32_small_letters_digits_and_dashes() {
        for good in ["us", "eu-west-1", "0", &"a".repeat(32)] {
            assert_eq!(Region::new(good).map(|region| region.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "US", "a b", "é", "a_b", "a\n", &"a".repeat(33)] {
            assert_eq!(Region::new(bad), None, "{bad:?}");
        }
    }
}
