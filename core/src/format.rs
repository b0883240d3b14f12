//! In which form a deployment's data are written, as its configuration states it. A build that does not know the form has to
//! leave the data alone.

use std::fmt;

use thiserror::Error;

/// The form of everything that a deployment has stored: one name for all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Format 1, which was written as a number, and whatever else is stated as one.
    Number(u64),
    /// A format that is stated by its name.
    Named(String),
    /// What stands there is neither a number that this build can read nor a text.
    Other,
}

impl Format {
    /// What this build writes.
    pub const WRITTEN: &str = "2-part1";
    /// What a deployment is written in that states none.
    pub const FIRST: Self = Self::Number(1);

    /// What this build writes.
    pub fn written() -> Self {
        Self::Named(Self::WRITTEN.to_owned())
    }

    /// Whether this build reads and writes it.
    ///
    /// # Errors
    /// It does not.
    pub fn known(self) -> Result<(), UnknownFormat> {
        if self == Self::written() { Ok(()) } else { Err(UnknownFormat(self)) }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "format {number}"),
            Self::Named(name) => write!(f, "format {name}"),
            Self::Other => f.write_str("a format that is neither a number nor a text"),
        }
    }
}

/// A deployment in a form that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the deployment is written in {0}, this build knows {known}", known = Format::WRITTEN)]
pub struct UnknownFormat(pub Format);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_format_that_is_written_is_known_and_any_other_is_named() {
        assert_eq!(Format::Named("2-part1".to_owned()).known(), Ok(()));
        let said = |format: Format| format.known().unwrap_err().to_string();
        assert_eq!(said(Format::FIRST), "the deployment is written in format 1, this build knows 2-part1");
        assert_eq!(said(Format::Number(2)), "the deployment is written in format 2, this build knows 2-part1");
        let next = Format::Named("2".to_owned());
        assert_eq!(said(next), "the deployment is written in format 2, this build knows 2-part1");
        let other =
            "the deployment is written in a format that is neither a number nor a text, this build knows 2-part1";
        assert_eq!(said(Format::Other), other);
    }
}
