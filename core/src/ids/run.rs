//! The names of what a recount does: the run that a person starts, and each window opened on a row key.
//!
//! Both are 128 bits and are stored as 32 lower-case hexadecimal digits, but neither is ever taken for the other.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::time::UnixMillis;

/// A text that is no run id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a run id is 32 lower-case hexadecimal digits")]
pub struct BadRunId;

macro_rules! run {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl From<u128> for $name {
            fn from(bits: u128) -> Self {
                Self(bits)
            }
        }

        impl FromStr for $name {
            type Err = BadRunId;

            fn from_str(text: &str) -> Result<Self, BadRunId> {
                bits(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

run! {
    /// One run of the recount, an audit or a list of posts, with all the windows it opens. Its id begins with its time.
    AuditRun
}
run! {
    /// One attempt at an exact count of one row key: 128 random bits, so that no two attempts are ever taken for one.
    WindowRun
}

impl AuditRun {
    /// The id of a run beginning at `began`: ids in order are runs in order.
    pub fn beginning(began: UnixMillis, random: u64) -> Self {
        Self(u128::from(began.0) << 64 | u128::from(random))
    }
}

fn bits(text: &str) -> Result<u128, BadRunId> {
    let hex = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !hex {
        return Err(BadRunId);
    }
    u128::from_str_radix(text, 16).map_err(|_| BadRunId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_survives_being_written_and_read_and_has_one_spelling() {
        for bits in [0, 1, u128::MAX] {
            assert_eq!(AuditRun::from(bits).to_string().parse(), Ok(AuditRun::from(bits)));
            assert_eq!(WindowRun::from(bits).to_string(), AuditRun::from(bits).to_string());
        }
        for text in ["", "1", &"F".repeat(32), &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(text.parse::<WindowRun>().is_err(), "{text}");
        }
    }
}
