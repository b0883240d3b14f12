//! What an update wants of the total, so that no threshold is passed without a record of it: the decision alone.

use super::{Crossed, Events, Ladder, Milestone, Winner};
use crate::counter::Counter;
use crate::ids::CounterKind;
use crate::time::UnixMillis;

/// What an update that changes a total wants of the counter beside its watermark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// How many entries of the ladder its sender knows: a counter for which more are in force refuses it.
    pub knows: u32,
    /// Where the total has to stand.
    pub bound: Bound,
}

/// Where a total has to stand for an update to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// Anywhere: every threshold is recorded.
    #[default]
    Free,
    /// Below this: from there the update reaches no threshold that may be unrecorded.
    Below(i64),
    /// Exactly where it was seen: what is reached from there is recorded with it.
    Crossing {
        /// The version seen; 0 for a counter that is not there.
        version: u64,
        /// What is recorded, upwards.
        reached: Vec<Milestone>,
        /// Every threshold up to this one is recorded afterwards.
        through: i64,
    },
}

/// A counter as it was last seen, as far as milestones go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its total.
    pub likes: i64,
    /// Its version.
    pub version: u64,
    /// The greatest threshold recorded.
    pub recorded: Option<i64>,
    /// Whether the total may be right as far as the item says.
    pub sound: bool,
}

/// One record of a prefix: what it adds, when it was written, and who or what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What the total gains.
    pub delta: i64,
    /// When its change reached the table.
    pub written: UnixMillis,
    /// Who or what is the winner if it reaches a threshold; `None` where that is not readable.
    pub by: Option<&'a Winner>,
}

/// What a sender knows when it makes an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The ladder.
    pub ladder: Ladder,
    /// The counter; `None` where it was not seen.
    pub seen: Option<Seen>,
    /// Now.
    pub now: UnixMillis,
    /// Whether no loss of stream is known.
    pub exact: bool,
}

impl Seen {
    /// What `counter`, of a kind, shows.
    pub fn of(kind: CounterKind, counter: &Counter) -> Self {
        let Counter { likes, version, recorded, .. } = *counter;
        Self { likes, version, recorded, sound: counter.is_sound_as(kind) }
    }
}

impl Guard {
    /// What is recorded with the update.
    pub fn reached(&self) -> &[Milestone] {
        match &self.bound {
            Bound::Crossing { reached, .. } => reached,
            Bound::Free | Bound::Below(_) => &[],
        }
    }

    /// The same guard without records of `thresholds`, which stand already.
    #[must_use]
    pub fn without(mut self, thresholds: &[i64]) -> Self {
        if let Bound::Crossing { reached, .. } = &mut self.bound {
            reached.retain(|milestone| !thresholds.contains(&milestone.n));
        }
        self
    }
}

impl Bound {
    /// Whether a counter of this total and version is where the update wants it.
    pub fn admits(&self, likes: i64, version: u64) -> bool {
        match self {
            Self::Free => true,
            Self::Below(bound) => likes < *bound,
            Self::Crossing { version: seen, .. } => version == *seen,
        }
    }
}

/// The guard of an update of these records, in order; `None` where none of them changes the total.
///
/// A total that only falls is guarded, too: one that a correction has lifted over a threshold would be below it again, and
/// the next rise would look like the first.
pub fn guard<'a>(terms: &Terms, steps: impl Iterator<Item = Step<'a>> + Clone) -> Option<Guard> {
    steps
        .clone()
        .any(|step| step.delta != 0)
        .then(|| Guard { knows: terms.ladder.entries(), bound: bound(terms, steps) })
}

fn bound<'a>(terms: &Terms, steps: impl Iterator<Item = Step<'a>> + Clone) -> Bound {
    let Some(next) = terms.ladder.above(terms.seen.and_then(|seen| seen.recorded)) else { return Bound::Free };
    let rise = rise(steps.clone());
    match terms.seen {
        Some(seen) if seen.likes >= next || seen.likes.saturating_add(rise) >= next => {
            crossing(terms, &seen, rise, steps)
        }
        Some(_) | None => Bound::Below(next.saturating_sub(rise)),
    }
}

/// How far above where it began the total stands at the most on the way.
fn rise<'a>(steps: impl Iterator<Item = Step<'a>>) -> i64 {
    let mut total = 0i64;
    steps.fold(0, |most, step| {
        total = total.saturating_add(step.delta);
        most.max(total)
    })
}

fn crossing<'a>(terms: &Terms, seen: &Seen, rise: i64, steps: impl Iterator<Item = Step<'a>>) -> Bound {
    let Crossed { thresholds, skipped } =
        terms.ladder.crossed(seen.recorded, seen.likes.saturating_add(rise).max(seen.likes));
    let through = thresholds.last().copied().unwrap_or_default();
    let (version, mut total) = (seen.version.saturating_add(1), seen.likes);
    let recorded = |n, by, at: UnixMillis| Milestone {
        n,
        by,
        at,
        lag: u64::try_from(terms.now.since(at).as_millis()).unwrap_or(u64::MAX),
        version,
        exact: terms.exact && seen.sound,
        skipped: if Some(&n) == thresholds.first() { skipped } else { 0 },
    };
    let (found, ahead) = thresholds.split_at(thresholds.partition_point(|n| *n <= seen.likes));
    let mut reached: Vec<Milestone> = found.iter().map(|n| recorded(*n, Winner::Unwitnessed, terms.now)).collect();
    let mut ahead = ahead.iter().copied().peekable();
    for step in steps {
        let before = total;
        total = total.saturating_add(step.delta);
        while let Some(n) = ahead.next_if(|n| *n <= total) {
            reached.push(recorded(n, winner(step.by, n.saturating_sub(before)), step.written));
        }
    }
    Bound::Crossing { version: seen.version, reached, through }
}

/// The winner that a record names; of a cell's, how much of what it took in was needed.
fn winner(by: Option<&Winner>, needed: i64) -> Winner {
    match by {
        Some(Winner::Events(events)) => Winner::Events(Events { nth: needed, ..events.clone() }),
        Some(by) => by.clone(),
        None => Winner::Unwitnessed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MemberKey;

    fn ladder() -> Ladder {
        "100,200".parse().unwrap()
    }

    fn seen(likes: i64, recorded: Option<i64>) -> Seen {
        Seen { likes, version: 7, recorded, sound: true }
    }

    fn member(name: &str) -> Winner {
        Winner::Member(MemberKey::new(name).unwrap())
    }

    fn bound_of(seen: Option<Seen>, deltas: &[i64]) -> Bound {
        let winners: Vec<Winner> = (0..deltas.len()).map(|at| member(&format!("u-{at}"))).collect();
        let terms = Terms { ladder: ladder(), seen, now: UnixMillis(5_000), exact: true };
        let step = |(delta, by)| Step { delta, written: UnixMillis(4_000), by: Some(by) };
        guard(&terms, deltas.iter().copied().zip(&winners).map(step)).unwrap().bound
    }

    /// What is recorded: the threshold, and which of the records reached it.
    fn reached(bound: &Bound) -> Vec<(i64, String)> {
        let Bound::Crossing { version: 7, reached, .. } = bound else { panic!("{bound:?}") };
        reached.iter().map(|milestone| (milestone.n, milestone.by.to_string().replace("member\n", ""))).collect()
    }

    #[test]
    fn an_update_wants_a_total_from_which_it_reaches_nothing_on_its_way() {
        assert_eq!(bound_of(None, &[1, 1, -1]), Bound::Below(98), "the first threshold, less its highest point");
        assert_eq!(bound_of(None, &[-1, -1]), Bound::Below(100));
        assert_eq!(bound_of(None, &[150]), Bound::Below(-50), "a counter that is not there refuses");
        assert_eq!(bound_of(Some(seen(90, None)), &[1, 1]), Bound::Below(98));
        assert_eq!(bound_of(Some(seen(150, Some(100))), &[5]), Bound::Below(195));
        assert_eq!(bound_of(Some(seen(500, Some(200))), &[5]), Bound::Free, "every threshold is recorded");
    }

    #[test]
    fn the_record_that_lifts_the_total_to_a_threshold_is_its_winner() {
        let bound = bound_of(Some(seen(98, None)), &[1, -1, 1, 1, 1]);
        assert_eq!(reached(&bound), [(100, "u-3".to_owned())]);
        assert!(matches!(bound, Bound::Crossing { through: 100, .. }));
        assert_eq!(reached(&bound_of(Some(seen(99, None)), &[1])), [(100, "u-0".to_owned())]);
        let both = reached(&bound_of(Some(seen(98, None)), &[1, 150]));
        assert_eq!(both, [(100, "u-1".to_owned()), (200, "u-1".to_owned())]);
        let again = reached(&bound_of(Some(seen(199, Some(100))), &[-100, 101]));
        assert_eq!(again, [(200, "u-1".to_owned())], "what is recorded is not reached twice");
    }

    #[test]
    fn what_is_found_reached_has_no_winner_also_where_the_records_dip_and_rise() {
        let found = reached(&bound_of(Some(seen(100, None)), &[-1, 1]));
        assert_eq!(found, [(100, "unwitnessed".to_owned())]);
        let more = reached(&bound_of(Some(seen(120, None)), &[80]));
        assert_eq!(more, [(100, "unwitnessed".to_owned()), (200, "u-0".to_owned())]);
    }

    #[test]
    fn an_update_that_changes_no_total_wants_nothing_of_it() {
        let terms = Terms { ladder: ladder(), ..Terms::default() };
        let step = Step { delta: 0, written: UnixMillis(0), by: None };
        assert_eq!(guard(&terms, std::iter::once(step)), None);
        assert_eq!(guard(&terms, std::iter::empty()), None);
        let some = Step { delta: 1, ..step };
        let unaware = guard(&Terms::default(), std::iter::once(some));
        assert_eq!(unaware, Some(Guard { knows: 0, bound: Bound::Free }), "it says that it knows no ladder");
    }

    #[test]
    fn a_milestone_says_when_at_which_version_and_how_sure_it_is() {
        let of = |terms: Terms| {
            let by = member("u");
            let step = Step { delta: 1, written: UnixMillis(4_000), by: Some(&by) };
            guard(&terms, std::iter::once(step)).unwrap().reached()[0].clone()
        };
        let terms = Terms { ladder: ladder(), seen: Some(seen(99, None)), now: UnixMillis(5_500), exact: true };
        let milestone = of(terms);
        assert_eq!((milestone.at, milestone.lag, milestone.version), (UnixMillis(4_000), 1_500, 8));
        assert!(milestone.exact && !of(Terms { exact: false, ..terms }).exact);
        assert!(!of(Terms { seen: Some(Seen { sound: false, ..seen(99, None) }), ..terms }).exact);
    }

    #[test]
    fn of_a_cells_events_it_says_how_much_of_them_it_took() {
        let events =
            Events { topic: "views".into(), partition: 3, generation: 0, from: 10, to: 20, nth: 0, gained: 50 };
        let by = Winner::Events(events.clone());
        let terms = Terms { ladder: ladder(), seen: Some(seen(80, None)), ..Terms::default() };
        let steps = [
            Step { delta: 5, written: UnixMillis(0), by: Some(&member("x")) },
            Step { delta: 50, written: UnixMillis(0), by: Some(&by) },
        ];
        let guard = guard(&terms, steps.into_iter()).unwrap();
        assert_eq!(guard.reached()[0].by, Winner::Events(Events { nth: 15, ..events }));
    }

    #[test]
    fn of_more_thresholds_than_a_transaction_takes_the_last_are_recorded_and_the_first_of_them_says_how_many_are_not() {
        let by = member("u");
        let terms = Terms { ladder: "every:1".parse().unwrap(), seen: Some(seen(0, None)), ..Terms::default() };
        let guard = guard(&terms, std::iter::once(Step { delta: 200, written: UnixMillis(0), by: Some(&by) })).unwrap();
        let reached = guard.reached();
        assert_eq!((reached.len(), reached[0].n, reached[0].skipped, reached[1].skipped), (90, 111, 110, 0));
        assert!(matches!(guard.bound, Bound::Crossing { through: 200, .. }));
    }
}
