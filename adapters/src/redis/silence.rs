//! When a connection that answers nothing is given up for another. It knows nothing of connections: it is told of each
//! asking and of each answer.

use std::time::Duration;

use tokio::time::Instant;

/// How often a connection is asked in vain before it may be given up: callers with less patience than ours go away before
/// a slow answer, and what comes after it shows that nothing is wrong.
const IN_VAIN: u32 = 3;

/// The longest that a new connection is waited for after others that answered nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// What to do about an asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Ask the connection there is.
    Again,
    /// Ask a new one: that of before was asked in vain for too long.
    InVain,
}

/// The how manieth connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nth(u64);

/// Watches over one connection after the other.
pub(super) struct Watch {
    nth: Nth,
    /// How long the first may be silent, and any after an answer.
    first: Duration,
    /// How long this one may be: longer each time that a new one was silent, so that slow ones come to an answer.
    patience: Duration,
    silence: Option<Silence>,
}

/// Nothing has been answered since.
struct Silence {
    since: Instant,
    asked: u32,
}

impl Watch {
    pub(super) fn new(patience: Duration) -> Self {
        Self { nth: Nth(0), first: patience, patience, silence: None }
    }

    /// Which connection is asked.
    pub(super) fn nth(&self) -> Nth {
        self.nth
    }

    /// Takes note of an asking.
    pub(super) fn asked(&mut self) -> Asked {
        let silence = self.silence.get_or_insert_with(|| Silence { since: Instant::now(), asked: 0 });
        silence.asked += 1;
        if silence.asked <= IN_VAIN || silence.since.elapsed() <= self.patience {
            return Asked::Again;
        }
        self.nth.0 += 1;
        self.patience = (self.patience * 2).min(LONGEST);
        self.silence = Some(Silence { since: Instant::now(), asked: 1 });
        Asked::InVain
    }

    /// Takes note of an answer. One of a connection that was given up says nothing of that which is asked now.
    pub(super) fn answered(&mut self, nth: Nth) {
        if nth == self.nth {
            self.silence = None;
            self.patience = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const MOMENT: Duration = Duration::from_millis(1);

    /// How long it takes until a connection that is asked each moment is given up.
    async fn silent(watch: &mut Watch) -> Duration {
        let began = Instant::now();
        while watch.asked() == Asked::Again {
            advance(MOMENT).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_silent_for_too_long_is_given_up_and_none_that_was_hardly_asked() {
        let mut watch = Watch::new(PATIENCE);
        for _ in 0..IN_VAIN {
            assert_eq!(watch.asked(), Asked::Again);
            advance(PATIENCE * 2).await;
        }
        assert_eq!(watch.asked(), Asked::InVain);
        let mut watch = Watch::new(PATIENCE);
        assert_eq!(silent(&mut watch).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_silence() {
        let mut watch = Watch::new(PATIENCE);
        for _ in 0..10 {
            for _ in 0..=IN_VAIN {
                assert_eq!(watch.asked(), Asked::Again);
                advance(PATIENCE / 3).await;
            }
            watch.answered(watch.nth());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_waited_for_longer_than_the_one_before_until_one_answers() {
        let mut watch = Watch::new(PATIENCE);
        let mut waited = Vec::new();
        for _ in 0..5 {
            waited.push(silent(&mut watch).await.as_secs());
        }
        assert_eq!(waited, [2, 4, 8, 10, 10]);
        watch.answered(watch.nth());
        assert_eq!(silent(&mut watch).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_one_given_up_says_nothing_of_the_next() {
        let mut watch = Watch::new(PATIENCE);
        let first = watch.nth();
        silent(&mut watch).await;
        assert_ne!(watch.nth(), first);
        let began = Instant::now();
        while watch.asked() == Asked::Again {
            watch.answered(first);
            advance(MOMENT).await;
        }
        assert!(began.elapsed() > PATIENCE);
    }
}
