//! What the API answered while it was attacked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::ensure;

use super::http::Answer;

/// Answers by status, and the first of those that no client may ever be given.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Heard>);

#[derive(Clone, Debug, Default)]
struct Heard {
    by_status: BTreeMap<u16, u64>,
    none: u64,
    busy: Option<Answer>,
    wrong: Option<Answer>,
}

impl Answers {
    /// Takes one in; `None` is a connection that was refused or broken.
    pub(crate) fn hear(&self, answer: Option<Answer>) {
        let mut heard = self.heard();
        let Some(answer) = answer else {
            heard.none += 1;
            return;
        };
        *heard.by_status.entry(answer.status).or_default() += 1;
        match answer.status {
            200 => {}
            503 => heard.busy = Some(answer),
            _ => heard.wrong = heard.wrong.take().or(Some(answer)),
        }
    }

    /// How many had this status.
    pub(crate) fn with(&self, status: u16) -> u64 {
        self.heard().by_status.get(&status).copied().unwrap_or(0)
    }

    /// The last answer that was none but a request to come back.
    pub(crate) fn busy(&self) -> Option<Answer> {
        self.heard().busy.clone()
    }

    /// Counts, or 503: the API has nothing else to say of a post.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let heard = self.heard();
        ensure!(heard.wrong.is_none(), "the api answered {:?}", heard.wrong);
        ensure!(heard.by_status.contains_key(&200), "the api never gave a count: {:?}", heard.by_status);
        Ok(())
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heard = self.heard();
        heard.by_status.iter().try_for_each(|(status, count)| write!(f, "{status}: {count}, "))?;
        write!(f, "no connection or no answer: {}", heard.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_api_is_in_order_and_any_other_failure_is_not() {
        let answer = |status| Some(Answer { status, body: String::new() });
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
