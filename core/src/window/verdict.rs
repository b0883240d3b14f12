//! From a window to a correction.

use thiserror::Error;

use super::{Roster, WindowRun};
use crate::Map;
use crate::counter::{Counter, Overflow, ShardTally};
use crate::ids::{MemberKey, RowKey};
use crate::weight::Weight;

/// What the rows weigh where the stream was followed to: those read and not touched as they were read, those touched as
/// the stream has them last.
pub fn exact_weight(read: &Roster, touched: &Map<MemberKey, Weight>) -> i128 {
    let as_read: i128 = touched.keys().map(|member| i128::from(read.weight(member).get())).sum();
    read.total() - as_read + sum(touched.values())
}

/// 128 bits hold the sum of any number of weights that fits a memory.
fn sum<'a>(weights: impl Iterator<Item = &'a Weight>) -> i128 {
    weights.map(|weight| i128::from(weight.get())).sum()
}

/// What a run says about one row key's count. Also a correction of 0 is one: it takes the token, so that no older
/// report can correct after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    NoToken,
    /// The rows' weights or their distance to the counter are beyond what a counter holds.
    #[error(transparent)]
    Overflow(#[from] Overflow),
}

/// What a window has found: what the counter's token says, and what the rows weighed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Judgement {
    /// Counted at the closing marker.
    pub before: i64,
    /// The rows' weight there.
    pub after: i64,
    /// Whether the count was suspect.
    pub suspect: bool,
}

impl Judgement {
    /// The least correction that may be large.
    pub const LARGE: u64 = 1000;
    /// One part of so many of a row key's count, or of its rows, makes it so.
    pub const LARGE_PART: u64 = 10;

    /// What to add to the count.
    pub fn correction(self) -> i64 {
        self.after.saturating_sub(self.before)
    }

    /// Whether the correction is one that is not made unless a person insists.
    pub fn is_large(self) -> bool {
        let Self { before, after, .. } = self;
        let (step, size) = (after.abs_diff(before), before.unsigned_abs().max(after.unsigned_abs()));
        step >= Self::LARGE && step.saturating_mul(Self::LARGE_PART) >= size
    }
}

/// Holds the rows' `exact` weight against the token of window `run` in the counter's shard.
pub fn judgement(run: WindowRun, exact: i128, tally: Option<&ShardTally>, form: Form) -> Result<Judgement, NoVerdict> {
    let token = tally.and_then(|tally| tally.window).filter(|token| token.run == run).ok_or(NoVerdict::NoToken)?;
    let after = i64::try_from(exact).map_err(|_| Overflow)?;
    after.checked_sub(token.rows).ok_or(Overflow)?;
    Ok(Judgement { before: token.rows, after, suspect: matches!(form, Form::Suspect { .. }) })
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
    use crate::window::Report;
    use crate::window::roster::by_name;

    fn counter(rows: i64, at_marker: i64, run: u128) -> Counter {
        let window = Some(Window { run: run.into(), rows: at_marker });
        let tally = ShardTally { rows, window, ..ShardTally::default() };
        let key: RowKey = "p#0".parse().unwrap();
        Counter { likes: rows, shards: [(key.shard, tally)].into(), ..Counter::default() }
    }

    /// What a window that has read and captured these says of the counter.
    fn verdict(read: &Roster, report: &Report, counter: &Counter, form: Form) -> Result<Verdict, NoVerdict> {
        let tally = counter.shards.get(&report.key.shard);
        let judgement = judgement(report.run, exact_weight(read, &report.touched), tally, form)?;
        Ok(Verdict { key: report.key.clone(), run: report.run, correction: judgement.correction(), form })
    }

    fn row((name, n): &(&str, i64)) -> (MemberKey, Weight) {
        (MemberKey::new(name).unwrap(), Weight::new(*n).unwrap())
    }

    fn weights(of: &[(&str, i64)]) -> Roster {
        let mut roster = Roster::new(by_name);
        roster.extend(&of.iter().map(row).collect::<Vec<_>>());
        roster.seal();
        roster
    }

    fn users(names: &[&str]) -> Roster {
        weights(&names.iter().map(|name| (*name, 1)).collect::<Vec<_>>())
    }

    fn report(touched: &[(&str, i64)]) -> Report {
        Report { key: "p#0".parse().unwrap(), run: 1.into(), touched: touched.iter().map(row).collect() }
    }

    #[test]
    fn a_row_touched_counts_as_the_stream_has_it_and_every_other_as_read() {
        let read = users(&["stays", "left", "early"]);
        let touched = report(&[("left", 0), ("late", 1), ("early", 1), ("never", 0)]);
        assert_eq!(exact_weight(&read, &touched.touched), 3);
    }

    /// The weight read may have any part of the window's changes in it, so neither presence nor the sum of the changes
    /// would do.
    #[test]
    fn a_touched_row_counts_its_last_weight_whatever_it_weighed_when_it_was_read() {
        let touched = report(&[("a", 12), ("b", -4), ("gone", 0)]);
        for read in [&[("a", 5), ("b", 0), ("c", 100)][..], &[("a", 12), ("b", -4), ("gone", 7), ("c", 100)]] {
            assert_eq!(exact_weight(&weights(read), &touched.touched), 108);
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
        assert_eq!(verdict(&users(&[]), &report(&[]), &counter(1, 1, 2), Form::Plain), Err(NoVerdict::NoToken));
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

    #[test]
    fn a_correction_is_large_by_number_and_by_share() {
        let is_large = |before, after| Judgement { before, after, suspect: false }.is_large();
        assert!(!is_large(0, 999));
        assert!(is_large(0, 1000));
        assert!(is_large(5000, 0));
        assert!(!is_large(100_000, 101_000));
        assert!(is_large(-600, 400));
    }
}
