//! The format in which a deployment's data are stored. Its configuration names the format, and each process checks it
//! at start: a build that does not know the format must not touch the data.

use std::fmt;

use thiserror::Error;

/// The format of everything that a deployment has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Format 1, which was stored as a number, or another number.
    Number(u64),
    /// A format that is stored by its name.
    Named(String),
    /// The stored format is neither a number that this build can read nor a text.
    Other,
}

impl Format {
    /// The name of the format that this build writes.
    pub const WRITTEN: &str = "2";
    /// The format of a deployment whose configuration names none.
    pub const FIRST: Self = Self::Number(1);

    /// Returns the format that this build writes.
    pub fn written() -> Self {
        Self::Named(Self::WRITTEN.to_owned())
    }

    /// Accepts the format that this build reads and writes.
    ///
    /// # Errors
    /// It is another format.
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

/// The deployment is stored in a format that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the deployment is written in {0}, this build knows {known}: see docs/operate.md", known = Format::WRITTEN)]
pub struct UnknownFormat(pub Format);
