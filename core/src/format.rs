//! In which form a deployment's data are written, as its configuration states it. A build that does not know the form has to
//! leave the data alone.

use std::fmt;

use thiserror::Error;

/// The form of everything that a deployment has stored: one number for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Number(u64),
    /// What stands there is no number that this build can read.
    Other,
}

impl Format {
    /// What this build writes, and what a deployment is written in that states none.
    pub const WRITTEN: u64 = 1;

    /// Whether this build reads and writes it.
    ///
    /// # Errors
    /// It does not.
    pub fn known(self) -> Result<(), UnknownFormat> {
        if self == Self::Number(Self::WRITTEN) { Ok(()) } else { Err(UnknownFormat(self)) }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "format {number}"),
            Self::Other => f.write_str("a format that is no number"),
        }
    }
}

/// A deployment in a form that this build does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the deployment is written in {0}, this build knows {known}", known = Format::WRITTEN)]
pub struct UnknownFormat(pub Format);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_format_that_is_written_is_known_and_any_other_is_named() {
        assert_eq!(Format::Number(1).known(), Ok(()));
        let said = |format: Format| format.known().unwrap_err().to_string();
        assert_eq!(said(Format::Number(7)), "the deployment is written in format 7, this build knows 1");
        assert_eq!(said(Format::Number(0)), "the deployment is written in format 0, this build knows 1");
        assert_eq!(said(Format::Other), "the deployment is written in a format that is no number, this build knows 1");
    }
}
