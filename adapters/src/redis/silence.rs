//! Decides when a connection that answers nothing is replaced. Pure: its caller notes each request and each answer.

use std::time::Duration;

use tokio::time::Instant;

/// How many requests have to be unanswered before a connection is replaced. Callers with less patience leave before a
/// slow answer, and the answer to a later request shows that the connection is fine.
const UNANSWERED: u32 = 3;

/// How long a new connection may be silent at most, after others that answered nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Watches one connection after another: when each was last asked, and whether it answered.
pub(super) struct Silence {
    /// The number of the present connection: answers from an older one are ignored.
    generation: u64,
    /// How long a connection may be silent: the first one, and any other after an answer.
    first: Duration,
    /// How long the present one may be silent: twice as long after each silent one before it, so that a slow server is
    /// reached.
    patience: Duration,
    /// When the first request since the last answer was made, and how many there were.
    unanswered: Option<(Instant, u32)>,
}

impl Silence {
    pub(super) fn new(patience: Duration) -> Self {
        Self { generation: 0, first: patience, patience, unanswered: None }
    }

    /// The number of the present connection.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Notes a request. Returns whether it has to go over a new connection, because the present one was silent for too
    /// long.
    pub(super) fn asked(&mut self) -> bool {
        let (since, requests) = self.unanswered.get_or_insert_with(|| (Instant::now(), 0));
        *requests += 1;
        if *requests <= UNANSWERED || since.elapsed() <= self.patience {
            return false;
        }
        self.generation += 1;
        self.patience = (self.patience * 2).min(LONGEST);
        self.unanswered = Some((Instant::now(), 1));
        true
    }

    /// Notes an answer. One from an older connection is ignored.
    pub(super) fn answered(&mut self, generation: u64) {
        if generation == self.generation {
            self.unanswered = None;
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

    /// Returns how long it takes until a connection that is asked each moment is replaced.
    async fn silent(silence: &mut Silence) -> Duration {
        let began = Instant::now();
        while !silence.asked() {
            advance(MOMENT).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_silent_for_too_long_is_replaced_and_one_hardly_asked_is_not() {
        let mut silence = Silence::new(PATIENCE);
        for _ in 0..UNANSWERED {
            assert!(!silence.asked());
            advance(PATIENCE * 2).await;
        }
        assert!(silence.asked());
        let mut silence = Silence::new(PATIENCE);
        assert_eq!(silent(&mut silence).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_silence() {
        let mut silence = Silence::new(PATIENCE);
        for _ in 0..10 {
            for _ in 0..=UNANSWERED {
                assert!(!silence.asked());
                advance(PATIENCE / 3).await;
            }
            silence.answered(silence.generation());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_connection_is_waited_for_longer_until_one_answers() {
        let mut silence = Silence::new(PATIENCE);
        let mut waited = Vec::new();
        for _ in 0..5 {
            waited.push(silent(&mut silence).await.as_secs());
        }
        assert_eq!(waited, [2, 4, 8, 10, 10]);
        silence.answered(silence.generation());
        assert_eq!(silent(&mut silence).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_an_older_connection_is_ignored() {
        let mut silence = Silence::new(PATIENCE);
        let first = silence.generation();
        silent(&mut silence).await;
        assert_ne!(silence.generation(), first);
        let began = Instant::now();
        while !silence.asked() {
            silence.answered(first);
            advance(MOMENT).await;
        }
        assert!(began.elapsed() > PATIENCE);
    }
}
