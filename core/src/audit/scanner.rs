//! The scan of one segment of the rows, as a machine without I/O: rows are weighed per row key in the order they come.
//!
//! The checkpoints are read before each page. A counter that is still within them when it is compared has taken nothing
//! since before its rows were read. One row key is held at a time, whatever the segment's size.

use std::sync::Arc;

use super::Horizon;
use crate::ids::{MemberKey, ReservedKey, RowKey, Shard, ShardCount};
use crate::ports::{Cursor, ScannedRow};
use crate::time::{Now, UnixMillis};

/// A row key whose rows were all read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weighed {
    /// The row key.
    pub key: RowKey,
    /// How many rows it has.
    pub rows: u64,
    /// What they weigh together: 128 bits hold that of any number of rows a store could have.
    pub weight: i128,
    /// How the counter was before the first of them was read.
    pub before: Before,
}

/// What tells whether a counter has changed since before its rows were read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// Everything that every counter was sure to have then.
    Applied(Arc<Horizon>),
    /// The first rows may have been read by another process: nothing tells.
    Unknown,
}

/// The row keys that one page completed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The row keys.
    pub keys: Vec<Weighed>,
    /// When the page had been read.
    pub ended: UnixMillis,
    /// Where the page began. Once this batch and all before it are settled, a scan continued here misses no row key: the one
    /// whose last row lies before it is in this batch.
    pub begin: Option<Cursor>,
}

/// What a scan asks for, or tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScanEffect {
    /// Say what every counter is sure to have now; an older answer proves less, never too much.
    ReadHorizon,
    /// Read the page that begins here, consistently.
    ReadPage(Option<Cursor>),
    /// A row stands outside its member's shard of the deployment's, or is none that is counted. A member's may be under another
    /// home of its set.
    Misplaced(ScannedRow),
    /// A row of this row key has a weight that no process can read. Its change record made the count doubtful, unless it was lost:
    /// say so of the count now.
    Doubtful(RowKey),
    /// Compare these row keys with their counters.
    Compare(Batch),
    /// Everything was read.
    End,
}

/// What a scan is told.
#[derive(Clone, Debug)]
pub enum ScanInput {
    /// Begin.
    Begin,
    /// What every counter is sure to have.
    Horizon(Arc<Horizon>),
    /// A page, and where the next begins.
    Page(Vec<ScannedRow>, Option<Cursor>),
}

/// One scan under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scanner {
    shards: ShardCount,
    stage: Stage,
    /// Where the page under way begins.
    begin: Option<Cursor>,
    current: Option<Current>,
    /// Whether the first rows of the next row key may have been passed over.
    amid: bool,
    /// Row keys completed by the page under way.
    done: Vec<Weighed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New,
    Horizon,
    Page(Arc<Horizon>),
    Over,
}

/// The row key whose rows are coming; `None` where `pk` is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Current {
    pk: String,
    weighed: Option<Weighed>,
    /// Whether the scanner has told that its count is doubtful.
    is_doubtful: bool,
}

impl Scanner {
    /// A scan that begins at `begin`, of a deployment with so many shards.
    pub fn new(shards: ShardCount, begin: Option<Cursor>) -> Self {
        let amid = begin.is_some();
        Self { shards, stage: Stage::New, begin, current: None, amid, done: Vec::new() }
    }

    /// Takes an input, and adds what follows to `effects`. `now.wall` is by the clock that is furthest ahead, ours or a
    /// change-streamer's.
    pub fn step(&mut self, now: Now, input: ScanInput, effects: &mut Vec<ScanEffect>) {
        match (std::mem::replace(&mut self.stage, Stage::Over), input) {
            (Stage::New, ScanInput::Begin) => self.next_page(effects),
            (Stage::Horizon, ScanInput::Horizon(horizon)) => {
                self.stage = Stage::Page(horizon);
                effects.push(ScanEffect::ReadPage(self.begin.clone()));
            }
            (Stage::Page(horizon), ScanInput::Page(rows, next)) => {
                for row in rows {
                    self.row(row, &horizon, effects);
                }
                self.paged(now.wall, next, effects);
            }
            // Not waited for.
            (stage, _) => self.stage = stage,
        }
    }

    fn next_page(&mut self, effects: &mut Vec<ScanEffect>) {
        self.stage = Stage::Horizon;
        effects.push(ScanEffect::ReadHorizon);
    }

    fn row(&mut self, row: ScannedRow, horizon: &Arc<Horizon>, effects: &mut Vec<ScanEffect>) {
        if self.current.as_ref().is_none_or(|current| current.pk != row.pk) {
            self.complete();
            let amid = std::mem::take(&mut self.amid);
            let before = if amid { Before::Unknown } else { Before::Applied(Arc::clone(horizon)) };
            let weighed = |key| Weighed { key, rows: 0, weight: 0, before };
            let weighed = row.pk.parse().ok().map(weighed);
            self.current = Some(Current { pk: row.pk.clone(), weighed, is_doubtful: false });
        }
        let weight = row.weight();
        if let Some(Current { weighed: Some(weighed), is_doubtful: is_doubtful @ false, .. }) = &mut self.current
            && weight.is_none()
            && MemberKey::new(&row.sort).is_some()
        {
            *is_doubtful = true;
            effects.push(ScanEffect::Doubtful(weighed.key.clone()));
        }
        let weighed = self.current.as_mut().and_then(|current| current.weighed.as_mut());
        let at_home = weighed.as_ref().is_some_and(|weighed| weighed.key.shard == home(&row.sort, self.shards));
        // As the fold has it: a row counts for the key it stands under, wherever it belongs.
        if let (Some(weighed), Some(weight)) = (weighed, weight) {
            weighed.rows += 1;
            weighed.weight += i128::from(weight.get());
        }
        if weight.is_none() || !at_home {
            effects.push(ScanEffect::Misplaced(row));
        }
    }

    /// The row key whose rows came has no more of them; one without a row that is counted is none.
    fn complete(&mut self) {
        let weighed = self.current.take().and_then(|current| current.weighed);
        self.done.extend(weighed.filter(|weighed| weighed.rows > 0));
    }

    fn paged(&mut self, ended: UnixMillis, next: Option<Cursor>, effects: &mut Vec<ScanEffect>) {
        let begin = std::mem::replace(&mut self.begin, next);
        let over = self.begin.is_none();
        if over {
            self.complete();
        }
        if !self.done.is_empty() {
            let keys = std::mem::take(&mut self.done);
            effects.push(ScanEffect::Compare(Batch { keys, ended, begin }));
        }
        if over {
            effects.push(ScanEffect::End);
        } else {
            self.next_page(effects);
        }
    }
}

/// The shard that a row of `sort` belongs in.
fn home(sort: &str, shards: ShardCount) -> Shard {
    match ReservedKey::read(sort) {
        Some(ReservedKey::Cell { partition, .. }) => shards.shard_of_cell(partition),
        _ => shards.shard_of(sort),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::Ordinal;
    use crate::lineage::{Checkpoint, Lineage};
    use crate::weight::Stated;

    /// What every counter was sure to have at one of several moments.
    fn horizon(moment: u64) -> Arc<Horizon> {
        let shard = Checkpoint {
            id: "s".into(),
            parent: None,
            ordinal: Ordinal(1),
            sequence: Some(moment.into()),
            closed: false,
            at: UnixMillis(moment),
        };
        Arc::new(Horizon::of(&Lineage::new([shard], [], None)))
    }

    /// Plays a scan of pages of rows, each given as row key and member; page n is read behind horizon n, at time n.
    fn scan(begin: Option<&str>, pages: &[&[(&str, &str)]]) -> Vec<ScanEffect> {
        let shards = ShardCount::new(1).unwrap();
        let mut scanner = Scanner::new(shards, begin.map(|begin| Cursor(begin.to_owned())));
        let (mut page, mut input, mut effects, mut told) = (0, Some(ScanInput::Begin), Vec::new(), Vec::new());
        while let Some(given) = input.take() {
            scanner.step(Now { wall: UnixMillis(page as u64), ..Now::default() }, given, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    ScanEffect::ReadHorizon => input = Some(ScanInput::Horizon(horizon(page as u64 + 1))),
                    ScanEffect::ReadPage(_) => {
                        let row = |(pk, sort): &(&str, &str)| ScannedRow {
                            pk: (*pk).to_owned(),
                            sort: (*sort).to_owned(),
                            stated: Stated::Nothing,
                        };
                        let rows = pages[page].iter().map(row).collect();
                        page += 1;
                        input = Some(ScanInput::Page(rows, (page < pages.len()).then(|| Cursor(page.to_string()))));
                    }
                    effect => told.push(effect),
                }
            }
        }
        assert_eq!(told.pop(), Some(ScanEffect::End));
        told
    }

    fn weighed(key: &str, rows: u64, before: Before) -> Weighed {
        Weighed { key: key.parse().unwrap(), rows, weight: rows.into(), before }
    }

    fn batch(keys: Vec<Weighed>, ended: u64, begin: Option<&str>) -> ScanEffect {
        let begin = begin.map(|begin| Cursor(begin.to_owned()));
        ScanEffect::Compare(Batch { keys, ended: UnixMillis(ended), begin })
    }

    #[test]
    fn a_row_key_over_several_pages_is_compared_by_what_was_applied_before_the_first() {
        let told = scan(None, &[&[("a#0", "1"), ("b#0", "1")], &[("b#0", "2")], &[("b#0", "3"), ("c#0", "1")]]);
        let first = batch(vec![weighed("a#0", 1, Before::Applied(horizon(1)))], 1, None);
        let rest = [weighed("b#0", 3, Before::Applied(horizon(1))), weighed("c#0", 1, Before::Applied(horizon(3)))];
        assert_eq!(told, [first, batch(rest.to_vec(), 3, Some("2"))], "the second page completes nothing");
    }

    #[test]
    fn the_first_row_key_of_a_scan_that_is_continued_may_have_rows_before() {
        let told = scan(Some("0"), &[&[("a#0", "7"), ("b#0", "1")]]);
        let keys = vec![weighed("a#0", 1, Before::Unknown), weighed("b#0", 1, Before::Applied(horizon(1)))];
        assert_eq!(told, [batch(keys, 1, Some("0"))]);
    }

    #[test]
    fn a_row_key_with_a_row_of_unreadable_weight_is_doubtful_which_is_told_once() {
        let mut effects = Vec::new();
        let mut scanner = Scanner::new(ShardCount::new(1).unwrap(), None);
        let now = Now { at: Duration::ZERO, wall: UnixMillis(1) };
        let row = |pk: &str, sort: &str, stated| ScannedRow { pk: pk.into(), sort: sort.into(), stated };
        scanner.step(now, ScanInput::Begin, &mut effects);
        scanner.step(now, ScanInput::Horizon(horizon(1)), &mut effects);
        let rows = vec![
            row("a#0", "1", Stated::Unreadable),
            row("a#0", "2", Stated::Unreadable),
            row("b#0", "1", Stated::Nothing),
            row("b#0", "\u{7f}", Stated::Unreadable),
        ];
        scanner.step(now, ScanInput::Page(rows, None), &mut effects);
        let doubtful = |effect: &ScanEffect| matches!(effect, ScanEffect::Doubtful(_));
        let told: Vec<ScanEffect> = effects.into_iter().filter(doubtful).collect();
        assert_eq!(told, [ScanEffect::Doubtful("a#0".parse().unwrap())], "what is of no member is no row of ours");
    }

    #[test]
    fn a_misplaced_row_is_told_and_counts_where_it_stands_and_one_of_no_member_counts_nowhere() {
        let told = scan(None, &[&[("a#3", "1"), ("b#0", "\u{7f}"), ("no key", "1")]]);
        let misplaced: Vec<&str> = told
            .iter()
            .filter_map(|effect| match effect {
                ScanEffect::Misplaced(row) => Some(row.pk.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(misplaced, ["a#3", "b#0", "no key"]);
        assert_eq!(told.last(), Some(&batch(vec![weighed("a#3", 1, Before::Applied(horizon(1)))], 1, None)));
    }
}
