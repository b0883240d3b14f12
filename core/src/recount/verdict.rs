//! From a window to a correction.

use thiserror::Error;

use super::{Report, WindowRun};
use crate::Map;
use crate::counter::{Counter, Overflow};
use crate::ids::{MemberKey, RowKey};
use crate::weight::Weight;

/// The rows a window has read, each once, with their weights.
pub trait Read {
    /// What they weigh together.
    fn total(&self) -> i128;

    /// What the row of `member` weighed; nothing where there was none.
    fn weight(&self, member: &MemberKey) -> Weight;
}

impl Read for Map<MemberKey, Weight> {
    fn total(&self) -> i128 {
        sum(self.values())
    }

    fn weight(&self, member: &MemberKey) -> Weight {
        self.get(member).copied().unwrap_or_default()
    }
}

/// What the rows weigh at the closing marker: those read and not touched as they were read, those touched as the stream
/// has them last.
pub fn exact_weight(read: &impl Read, report: &Report) -> i128 {
    let touched: i128 = report.touched.keys().map(|member| i128::from(read.weight(member).get())).sum();
    read.total() - touched + sum(report.touched.values())
}

/// 128 bits hold the sum of any number of weights that fits a memory.
fn sum<'a>(weights: impl Iterator<Item = &'a Weight>) -> i128 {
    weights.map(|weight| i128::from(weight.get())).sum()
}

/// What a run says about one row key's count. Also a correction of 0 is one: it takes the token, so that no older
/// report can correct after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The row key recounted.
    pub key: RowKey,
    /// The window: the counter must still hold its token.
    pub run: WindowRun,
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

/// Why a window comes to no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoVerdict {
    /// The counter holds no token of it: another verdict took it, or a later window replaced it.
    #[error("the counter holds no token of this window")]
    NoWindow,
    /// The rows' weights or their distance to the counter are beyond what a counter holds.
    #[error(transparent)]
    Overflow(#[from] Overflow),
}

/// Draws the conclusion of a window from the rows read, the report, and the counter.
pub fn verdict(read: &impl Read, report: &Report, counter: &Counter, form: Form) -> Result<Verdict, NoVerdict> {
    let window = counter.shards.get(&report.key.shard).and_then(|tally| tally.window);
    let window = window.filter(|window| window.run == report.run).ok_or(NoVerdict::NoWindow)?;
    let exact = i64::try_from(exact_weight(read, report)).map_err(|_| Overflow)?;
    let correction = exact.checked_sub(window.rows).ok_or(Overflow)?;
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
    use crate::counter::{ShardTally, Window};

    fn counter(rows: i64, at_marker: i64, run: u128) -> Counter {
        let window = Some(Window { run: run.into(), rows: at_marker });
        let tally = ShardTally { rows, window, ..ShardTally::default() };
        let key: RowKey = "p#0".parse().unwrap();
        Counter { likes: rows, shards: [(key.shard, tally)].into(), ..Counter::default() }
    }

    fn weights(of: &[(&str, i64)]) -> Map<MemberKey, Weight> {
        of.iter().map(|(name, n)| (MemberKey::new(name).unwrap(), Weight::new(*n).unwrap())).collect()
    }

    fn users(names: &[&str]) -> Map<MemberKey, Weight> {
        names.iter().map(|name| (MemberKey::new(name).unwrap(), Weight::ONE)).collect()
    }

    fn report(touched: &[(&str, i64)]) -> Report {
        Report { key: "p#0".parse().unwrap(), run: 1.into(), touched: weights(touched) }
    }

    #[test]
    fn a_row_touched_counts_as_the_stream_has_it_and_every_other_as_read() {
        let read = users(&["stays", "left in the window", "came early"]);
        let touched = report(&[("left in the window", 0), ("came late", 1), ("came early", 1), ("never", 0)]);
        assert_eq!(exact_weight(&read, &touched), 3);
    }

    /// The weight read may have any part of the window's changes in it, so neither presence nor the sum of the changes
    /// would do.
    #[test]
    fn a_touched_row_counts_its_last_weight_whatever_it_weighed_when_it_was_read() {
        let touched = report(&[("a", 12), ("b", -4), ("gone", 0)]);
        for read in [&[("a", 5), ("b", 0), ("c", 100)][..], &[("a", 12), ("b", -4), ("gone", 7), ("c", 100)]] {
            assert_eq!(exact_weight(&weights(read), &touched), 108);
        }
    }

    #[test]
    fn weights_beyond_what_a_counter_holds_come_to_no_verdict() {
        let most: Vec<(String, i64)> = (0..10).map(|n| (n.to_string(), Weight::MAX)).collect();
        let most: Vec<(&str, i64)> = most.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let beyond = verdict(&weights(&most), &report(&[]), &counter(0, 0, 1), Form::Plain);
        assert_eq!(beyond, Err(NoVerdict::Overflow(Overflow)));
        let beyond = verdict(&weights(&most[..9]), &report(&[]), &counter(0, i64::MIN, 1), Form::Plain);
        assert_eq!(beyond, Err(NoVerdict::Overflow(Overflow)));
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
        assert_eq!(verdict(&users(&[]), &report(&[]), &counter(1, 1, 2), Form::Plain), Err(NoVerdict::NoWindow));
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
