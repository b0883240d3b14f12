//! The hold behind a loss of stream, which keeps `exact` honest.
//!
//! A count with anything behind a loss may be a number that its rows never had. The worker that meets the loss records it
//! as a gap first, and then waits [`HOLD`] before it applies anything behind it. So a reading of the gaps that is younger
//! than that, and finds something applied behind the loss, finds the gap as well.

use std::time::Duration;

use super::HOLD;

/// One loss of stream, met by one worker: until it is over, the worker applies nothing behind the loss and moves no
/// checkpoint past it. The next worker on that stream shard meets the loss again and holds for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The gap's record was not acknowledged to this worker yet.
    #[default]
    Unrecorded,
    /// It was, at this moment of the monotonic clock.
    Recorded(Duration),
}

impl Hold {
    /// The gap's record was acknowledged at `at`. A later acknowledgement of the same loss does not prolong the hold.
    pub fn recorded(&mut self, at: Duration) {
        if *self == Self::Unrecorded {
            *self = Self::Recorded(at);
        }
    }

    /// When the hold will be over; `None` before the gap is recorded.
    pub fn ends(self) -> Option<Duration> {
        match self {
            Self::Unrecorded => None,
            Self::Recorded(at) => Some(at + HOLD),
        }
    }

    /// Whether what lies behind the loss may be applied at `at`.
    pub fn is_over(self, at: Duration) -> bool {
        self.ends().is_some_and(|ends| ends <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_behind_a_loss_is_applied_before_eight_seconds_after_its_record() {
        let mut hold = Hold::default();
        assert!(!hold.is_over(SECOND * 1000), "not recorded");
        hold.recorded(SECOND * 10);
        assert!(!hold.is_over(SECOND * 18 - Duration::from_millis(1)));
        assert!(hold.is_over(SECOND * 18));
    }

    #[test]
    fn recording_the_same_loss_again_does_not_prolong_the_hold() {
        let mut hold = Hold::default();
        hold.recorded(SECOND * 10);
        hold.recorded(SECOND * 17);
        assert_eq!(hold.ends(), Some(SECOND * 18));
    }
}
