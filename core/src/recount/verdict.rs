//! From a window to a correction.

use thiserror::Error;

use super::{Report, RunId};
use crate::Set;
use crate::counter::{Counter, Overflow};
use crate::ids::{RowKey, UserId};

/// Everybody a window has read the row of, each once.
pub trait Read {
    /// How many.
    fn len(&self) -> u64;

    /// Whether nobody was read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `user` was among them.
    fn contains(&self, user: &UserId) -> bool;
}

impl Read for Set<UserId> {
    fn len(&self) -> u64 {
        Set::len(self) as u64
    }

    fn contains(&self, user: &UserId) -> bool {
        Set::contains(self, user)
    }
}

/// How many rows there are at the closing marker: those read and not touched, and those touched and liking.
pub fn exact_rows(read: &impl Read, report: &Report) -> u64 {
    let touched = report.touched.keys().filter(|user| read.contains(user)).count() as u64;
    let liking = report.touched.values().filter(|likes| **likes).count() as u64;
    read.len().saturating_sub(touched) + liking
}

/// What a run says about one row key's count. Also a correction of 0 is one: it takes the token, so that no older
/// report can correct after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The row key recounted.
    pub key: RowKey,
    /// The run: the counter must still hold its token.
    pub run: RunId,
    /// What to add.
    pub correction: i64,
    /// What else must hold.
    pub form: Form,
}

/// What a verdict relies on besides its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One open stream shard feeds the row key: the counter is not suspect.
    Plain,
    /// Several may: the feeder has not changed since before the rows were read, and every other open stream shard had
    /// passed the closing marker before this verdict was made. Clears the suspicion.
    Suspect {
        /// The switches counted before the rows were read.
        switches: u64,
    },
}

/// The counter holds no token of this run: another verdict took it, or a later run replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the counter holds no token of this run")]
pub struct NoWindow;

/// Draws the conclusion of a run from the rows read, the report, and the counter.
pub fn verdict(read: &impl Read, report: &Report, counter: &Counter, form: Form) -> Result<Verdict, NoWindow> {
    let window = counter.shards.get(&report.key.shard).and_then(|tally| tally.window);
    let window = window.filter(|window| window.run == report.run).ok_or(NoWindow)?;
    let exact = i64::try_from(exact_rows(read, report)).unwrap_or(i64::MAX);
    let correction = exact.saturating_sub(window.rows);
    Ok(Verdict { key: report.key.clone(), run: report.run, correction, form })
}

impl Verdict {
    /// The condition: repeating a verdict is safe, for the first copy takes the token.
    pub fn admitted_by(&self, counter: &Counter) -> bool {
        let Some(tally) = counter.shards.get(&self.key.shard) else { return false };
        let token = tally.window.is_some_and(|window| window.run == self.run);
        token
            && match self.form {
                Form::Plain => !tally.suspect,
                Form::Suspect { switches } => tally.switches == switches,
            }
    }

    /// The counter after the verdict, which it admits. A correction is added, never set.
    pub fn apply(&self, mut counter: Counter) -> Result<Counter, Overflow> {
        counter.likes = counter.likes.checked_add(self.correction).ok_or(Overflow)?;
        counter.version += 1;
        let tally = counter.shards.entry(self.key.shard).or_default();
        tally.rows = tally.rows.checked_add(self.correction).ok_or(Overflow)?;
        tally.window = None;
        if let Form::Suspect { .. } = self.form {
            tally.suspect = false;
        }
        Ok(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Map;
    use crate::counter::{ShardTally, Window};

    fn counter(rows: i64, at_marker: i64, run: u128) -> Counter {
        let window = Some(Window { run: run.into(), rows: at_marker });
        let tally = ShardTally { rows, window, ..ShardTally::default() };
        let key: RowKey = "p#0".parse().unwrap();
        Counter { likes: rows, shards: [(key.shard, tally)].into(), ..Counter::default() }
    }

    fn users(names: &[&str]) -> Set<UserId> {
        names.iter().map(|name| UserId::new(name).unwrap()).collect()
    }

    fn report(touched: &[(&str, bool)]) -> Report {
        let touched: Map<_, _> = touched.iter().map(|(name, likes)| (UserId::new(name).unwrap(), *likes)).collect();
        Report { key: "p#0".parse().unwrap(), run: 1.into(), touched }
    }

    #[test]
    fn whoever_was_touched_counts_as_the_stream_has_it_and_everybody_else_as_read() {
        let read = users(&["stays", "left in the window", "came early"]);
        let touched =
            report(&[("left in the window", false), ("came late", true), ("came early", true), ("never", false)]);
        assert_eq!(exact_rows(&read, &touched), 3);
    }

    #[test]
    fn a_correction_is_added_to_whatever_has_been_counted_since() {
        let counter = counter(12, 10, 1);
        let verdict = verdict(&users(&["a", "b", "c"]), &report(&[]), &counter, Form::Plain).unwrap();
        assert_eq!(verdict.correction, -7);
        let corrected = verdict.apply(counter).unwrap();
        assert_eq!((corrected.likes, corrected.sum(), corrected.version), (5, Ok(5), 1));
    }

    #[test]
    fn a_verdict_takes_its_token_also_when_there_is_nothing_to_correct() {
        let counter = counter(1, 1, 1);
        let verdict = verdict(&users(&["a"]), &report(&[]), &counter, Form::Plain).unwrap();
        assert_eq!(verdict.correction, 0);
        assert!(verdict.admitted_by(&counter));
        let judged = verdict.apply(counter).unwrap();
        assert!(!verdict.admitted_by(&judged));
    }

    #[test]
    fn a_later_run_kills_an_older_report() {
        assert_eq!(verdict(&users(&[]), &report(&[]), &counter(1, 1, 2), Form::Plain), Err(NoWindow));
    }

    #[test]
    fn only_the_suspect_form_judges_a_suspect_counter_and_only_if_its_feeder_stood_still() {
        let mut counter = counter(1, 1, 1);
        let tally = counter.shards.values_mut().next().unwrap();
        (tally.suspect, tally.switches) = (true, 4);
        let in_form = |form| verdict(&users(&["a"]), &report(&[]), &counter, form).unwrap();
        assert!(!in_form(Form::Plain).admitted_by(&counter));
        assert!(!in_form(Form::Suspect { switches: 3 }).admitted_by(&counter));
        let verdict = in_form(Form::Suspect { switches: 4 });
        assert!(verdict.admitted_by(&counter));
        assert!(verdict.apply(counter.clone()).unwrap().is_sound());
    }
}
