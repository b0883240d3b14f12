//! The id of a run of the recount: its time and a random number, stored as 32 lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::time::UnixMillis;

/// The text is no run id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a run id is 32 lower-case hexadecimal digits")]
pub struct BadRunId;

/// The id of a run of the recount. It begins with the time at which the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditRun(u128);

impl From<u128> for AuditRun {
    fn from(bits: u128) -> Self {
        Self(bits)
    }
}

impl FromStr for AuditRun {
    type Err = BadRunId;

    fn from_str(text: &str) -> Result<Self, BadRunId> {
        let run = u128::from_str_radix(text, 16).ok().map(Self);
        run.filter(|run| run.to_string() == text).ok_or(BadRunId)
    }
}

impl fmt::Display for AuditRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl AuditRun {
    /// Returns the id of a run that begins at `began`. Ids are in the order of their runs.
    pub fn beginning(began: UnixMillis, random: u64) -> Self {
        Self(u128::from(began.0) << 64 | u128::from(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_survives_being_written_and_read_and_has_one_spelling() {
        for bits in [0, 1, u128::MAX] {
            assert_eq!(AuditRun::from(bits).to_string().parse(), Ok(AuditRun::from(bits)));
        }
        for text in ["", "1", &"F".repeat(32), &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(text.parse::<AuditRun>().is_err(), "{text}");
        }
    }
}
