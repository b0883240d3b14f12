//! What the records that the fences have passed come to: the members of every set, and every cell. Each record of a sum
//! counts once, also where a fence was moved back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use tally_core::ids::{CounterId, Lane, UserId};

use super::events::{Deed, Events, Record};
use super::moves::{Fence, Move};

/// The fold of all moves so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Moves that are in it.
    taken: usize,
    /// Who is in which set.
    pub(crate) members: BTreeSet<(CounterId, UserId)>,
    /// What each partition has added to which sum.
    pub(crate) cells: BTreeMap<(CounterId, u32), i64>,
    /// Records of sums that were counted.
    counted: BTreeSet<(u32, u64)>,
    /// Records that were passed while no definition in force had their action.
    pub(crate) unknown: BTreeSet<(u32, u64)>,
    /// The greatest offset of any fence of each partition.
    greatest: BTreeMap<u32, u64>,
    /// Lane 0 of each partition, as it was last under each `cfg`.
    leaders: BTreeMap<(u32, u64), Fence>,
    /// How often a partition came to have another number of lanes.
    relaned: u64,
}

impl Fold {
    /// How many moves are in it.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How often a partition came to have another number of lanes.
    pub(crate) fn relaned(&self) -> u64 {
        self.relaned
    }

    /// Takes in what moved since.
    pub(crate) fn follow(&mut self, events: &Events, moves: &[Move]) -> anyhow::Result<()> {
        for moved in moves {
            self.taken += 1;
            let Move { partition, lane, before, .. } = *moved;
            let until = self.reached(moved)?;
            let Some(from) = before else { continue };
            let under =
                self.leaders.get(&(partition, from.cfg)).filter(|_| lane != Lane::FIRST).copied().unwrap_or(from);
            // What an operator moves forward is passed over; no schedule does.
            for offset in from.offset..until {
                let record = events.record(partition, offset).context("a fence is past the end of its log")?;
                self.pass((partition, offset), record, lane, &Fence { offset: from.offset, ..under })?;
            }
        }
        Ok(())
    }

    /// Up to where `moved` has passed its lane's records. A fence goes back only by an operator's command, which says how far
    /// all of them were, or by hand; `cfg` never goes back. A lane comes and goes with lane 0, at the same offset.
    fn reached(&mut self, moved: &Move) -> anyhow::Result<u64> {
        let Move { partition, lane, before, after, by_hand } = *moved;
        let leads = lane == Lane::FIRST;
        if leads && let Some(after) = after {
            self.leaders.insert((partition, after.cfg), after);
            self.relaned += u64::from(before.is_some_and(|before| before.lanes != after.lanes));
        }
        let cfg = after.map_or_else(|| before.map_or(0, |before| before.cfg + 1), |after| after.cfg);
        let leader = self.leaders.get(&(partition, cfg)).with_context(|| format!("no lane 0 moves with {moved:?}"))?;
        let until = after.map_or(leader.offset, |after| after.offset);
        let greatest = self.greatest.entry(partition).or_default();
        let redoes = leader.redo >= *greatest;
        *greatest = until.max(*greatest);
        let lawful = match before {
            Some(before) => {
                let earlier = self.leaders.get(&(partition, before.cfg)).unwrap_or(&before);
                let changes = (earlier.lanes, earlier.defs) != (leader.lanes, leader.defs);
                let back = by_hand || (cfg > before.cfg && redoes && !changes);
                cfg >= before.cfg && (until >= before.offset || back) && (!changes || until == leader.offset)
            }
            None => leads || until == leader.offset,
        };
        ensure!(lawful, "a fence of partition {partition} moved so: {moved:?}, beside {leader:?}");
        Ok(until)
    }

    fn pass(&mut self, place: (u32, u64), record: &Record, lane: Lane, under: &Fence) -> anyhow::Result<()> {
        let Some(deed) = &record.deed else { return Ok(()) };
        let (partition, offset) = place;
        if u64::from(record.needs) > under.defs.max(1) {
            ensure!(record.early, "{partition}:{offset} was said after it was defined, and passed under {under:?}");
            // What is no event goes through lane 0.
            if lane == Lane::FIRST {
                self.unknown.insert(place);
            }
            return Ok(());
        }
        if deed.lane(under.lanes) != lane {
            return Ok(());
        }
        match deed {
            Deed::Member { counter, member, present } => {
                let member = (counter.clone(), member.clone());
                if *present {
                    self.members.insert(member)
                } else {
                    self.members.remove(&member)
                };
            }
            Deed::Amount { counter, n } if self.counted.insert(place) => {
                *self.cells.entry((counter.clone(), partition)).or_default() += n;
            }
            Deed::Amount { .. } => ensure!(
                under.redo > under.offset,
                "{partition}:{offset} adds to a sum that has it, and was passed again under {under:?}"
            ),
        }
        Ok(())
    }

    /// What each counter comes to.
    pub(crate) fn totals(&self) -> BTreeMap<&CounterId, i64> {
        let mut totals = BTreeMap::new();
        for (counter, _) in &self.members {
            *totals.entry(counter).or_default() += 1;
        }
        for ((counter, _), n) in &self.cells {
            *totals.entry(counter).or_default() += n;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterKind, CounterName, LaneCount, PostId};

    use super::*;

    fn counter(name: &str, kind: CounterKind) -> CounterId {
        CounterId { post: PostId::new("p").expect("an id"), name: CounterName::new(name, kind).expect("a name") }
    }

    fn fence(offset: u64, cfg: u64, redo: u64) -> Fence {
        Fence { offset, cfg, lanes: LaneCount::ONE, defs: 2, redo }
    }

    fn moved(before: Fence, after: Fence) -> Move {
        Move { partition: 0, lane: Lane::FIRST, before: Some(before), after: Some(after), by_hand: false }
    }

    /// Three events of a sum of definition 2, of 1, 2 and 4.
    fn events() -> Events {
        let amount = |n| Deed::Amount { counter: counter("views", CounterKind::Sum), n };
        Events::of(0, [1, 2, 4].map(|n| Record { deed: Some(amount(n)), needs: 2, early: false }).into())
    }

    #[test]
    fn a_record_of_a_sum_counts_once_and_is_passed_again_only_by_a_fence_that_says_so() {
        let mut fold = Fold::default();
        fold.follow(&events(), &[moved(fence(0, 0, 0), fence(3, 0, 0))]).expect("it holds");
        fold.follow(&events(), &[moved(fence(3, 0, 0), fence(1, 1, 3))]).expect("a reset says how far it was");
        fold.follow(&events(), &[moved(fence(1, 1, 3), fence(3, 1, 3))]).expect("the cell is read first");
        assert_eq!(fold.totals().into_values().collect::<Vec<_>>(), [7]);
        let edited = Move { by_hand: true, ..moved(fence(3, 1, 3), fence(0, 1, 0)) };
        fold.follow(&events(), &[edited]).expect("it is told");
        assert!(
            fold.follow(&events(), &[moved(fence(0, 1, 0), fence(1, 1, 0))]).is_err(),
            "nothing says how far it was"
        );
    }

    #[test]
    fn a_fence_that_goes_back_by_itself_breaks_a_law() {
        for after in [fence(2, 0, 0), fence(2, 1, 2), fence(3, 0, 9)] {
            let mut fold = Fold::default();
            fold.follow(&events(), &[moved(fence(0, 0, 0), fence(3, 1, 0))]).expect("it holds");
            assert!(fold.follow(&events(), &[moved(fence(3, 1, 0), after)]).is_err(), "{after:?}");
        }
    }

    #[test]
    fn a_record_said_after_its_definition_is_never_passed_without_it() {
        let likes_alone = Fence { defs: 0, ..fence(0, 0, 0) };
        let passed = moved(likes_alone, Fence { offset: 1, ..likes_alone });
        assert!(Fold::default().follow(&events(), &[passed]).is_err());
    }

    /// Likes of users until both of two lanes have one: the lane of each.
    fn likes() -> (Events, Vec<Lane>) {
        let of = |n: usize| Deed::Member {
            counter: counter("likes", CounterKind::Set),
            member: UserId::new(&format!("u-{n}")).expect("an id"),
            present: true,
        };
        let deeds: Vec<Deed> = (0..8).map(of).collect();
        let lanes = deeds.iter().map(|deed| deed.lane(two())).collect();
        let record = |deed| Record { deed: Some(deed), needs: 1, early: false };
        (Events::of(0, deeds.into_iter().map(record).collect()), lanes)
    }

    fn two() -> LaneCount {
        LaneCount::ONE.doubled()
    }

    fn of_lane(lane: u8, before: Option<Fence>, after: Option<Fence>) -> Move {
        Move { partition: 0, lane: Lane::new(lane).expect("a lane"), before, after, by_hand: false }
    }

    /// Two lanes begin where one ended.
    fn widened(offset: u64) -> [Move; 2] {
        let after = fence(offset, 1, 0);
        let leads = of_lane(0, Some(fence(offset, 0, 0)), Some(Fence { lanes: two(), ..after }));
        [leads, of_lane(1, None, Some(after))]
    }

    #[test]
    fn a_lane_passes_its_own_members_and_one_that_goes_has_passed_what_lies_before_the_change() {
        let (events, lanes) = likes();
        let of = |lane: usize| lanes.iter().filter(|found| found.index() == lane).count();
        assert!(of(0) > 0 && of(1) > 0, "{lanes:?}");
        let mut fold = Fold::default();
        fold.follow(&events, &widened(0)).expect("it holds");
        fold.follow(&events, &[of_lane(1, Some(fence(0, 1, 0)), Some(fence(8, 1, 0)))]).expect("it holds");
        assert_eq!((fold.members.len(), fold.relaned()), (of(1), 1));
        let wide = |offset| Fence { lanes: two(), ..fence(offset, 1, 0) };
        fold.follow(&events, &[of_lane(0, Some(wide(0)), Some(wide(8)))]).expect("it holds");
        assert_eq!(fold.members.len(), 8);

        let mut fold = Fold::default();
        fold.follow(&events, &widened(0)).expect("it holds");
        let narrowed = [of_lane(0, Some(wide(0)), Some(fence(8, 2, 0))), of_lane(1, Some(fence(0, 1, 0)), None)];
        fold.follow(&events, &narrowed).expect("it holds");
        assert_eq!((fold.members.len(), fold.relaned()), (8, 2), "each of them should be in the rows by now");
    }

    #[test]
    fn a_lane_that_comes_elsewhere_than_the_others_or_without_them_breaks_a_law() {
        let (events, _) = likes();
        let [leads, joins] = widened(4);
        for joins in [Fence { offset: 5, ..fence(0, 1, 0) }, fence(4, 2, 0)] {
            let moves = [leads, of_lane(1, None, Some(joins))];
            assert!(Fold::default().follow(&events, &moves).is_err(), "{joins:?}");
        }
        assert!(Fold::default().follow(&events, &[joins]).is_err());
        let mut fold = Fold::default();
        fold.follow(&events, &[leads, joins]).expect("it holds");
        let wider = Fence { lanes: two().doubled(), ..fence(6, 2, 0) };
        let moves = |stays| {
            [
                of_lane(0, leads.after, Some(wider)),
                of_lane(1, joins.after, Some(Fence { offset: stays, ..fence(6, 2, 0) })),
            ]
        };
        assert!(fold.follow(&events, &moves(5)).is_err(), "a lane that stays is where the others are");
        assert!(Fold::default().follow(&events, &[leads, joins]).is_ok());
    }
}
