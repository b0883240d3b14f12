//! What the API answered while it was attacked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use tally_testkit::http::Answer;

/// Answers by status, and the first of those that no client may ever be given.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Received>);

#[derive(Clone, Debug, Default)]
struct Received {
    by_status: BTreeMap<u16, u64>,
    none: u64,
    busy: Option<Answer>,
    wrong: Option<Answer>,
}

impl Answers {
    /// Takes one in; `None` is a connection that was refused or broken.
    pub(crate) fn hear(&self, answer: Option<Answer>) {
        let mut received = self.received();
        let Some(answer) = answer else {
            received.none += 1;
            return;
        };
        *received.by_status.entry(answer.status).or_default() += 1;
        match answer.status {
            200 => {}
            503 => received.busy = Some(answer),
            _ => received.wrong = received.wrong.take().or(Some(answer)),
        }
    }

    /// How many had this status.
    pub(crate) fn with(&self, status: u16) -> u64 {
        self.received().by_status.get(&status).copied().unwrap_or(0)
    }

    /// The last answer that was none but a request to come back.
    pub(crate) fn busy(&self) -> Option<Answer> {
        self.received().busy.clone()
    }

    /// Counts, or 503: the API has nothing else to say of a post.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let received = self.received();
        ensure!(received.wrong.is_none(), "the api answered {:?}", received.wrong);
        ensure!(received.by_status.contains_key(&200), "the api never gave a count: {:?}", received.by_status);
        Ok(())
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let received = self.received();
        received.by_status.iter().try_for_each(|(status, count)| write!(f, "{status}: {count}, "))?;
        write!(f, "no connection or no answer: {}", received.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_api_is_in_order_and_any_other_failure_is_not() {
        let answer = |status| Some(Answer { status, head: String::new(), body: String::new() });
        let answers = Answers::default();
        answers.hear(answer(503));
        assert!(answers.judge().is_err(), "not one count was given");
        answers.hear(answer(200));
        answers.hear(None);
        assert!(answers.judge().is_ok());
        assert_eq!(answers.to_string(), "200: 1, 503: 1, no connection or no answer: 1");
        answers.hear(answer(500));
        assert!(answers.judge().is_err());
    }
}
