//! Checks in the simulation that the consumer has turned events into the right rows: a member's row is its newest
//! finished event, a cell (the row of a sum in one Kafka partition) contains every event up to its version `to` exactly
//! once, and a claim (the item that says how far a partition's events are written) never states more than is done.

mod letters;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey, ShardCount, UserId};
use tally_core::register::{Cell, Version};
use tally_core::time::UnixMillis;

use crate::simulation::events::{Effect, Events, TOPIC};
use crate::simulation::registers::{Change, Claim, Registers, Stored, version};

/// How long a statement may be under way. It is signed within a minute of the confirmation of its claim, a signature is valid
/// for five minutes, and a removal sets the time of its tombstone a moment earlier.
const UNDER_WAY: Duration = Duration::from_secs(7 * 60);

/// A set and one of its members.
type Member = (CounterId, UserId);

/// The history of one member's row.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Its current version and expiry; `None` if it was deleted.
    now: Option<(Version, Option<u64>)>,
    /// Its newest version, since the last tombstone expired if one has.
    newest: Version,
    /// Its newest version before an expired tombstone was forgotten because of a misrouted event.
    forgotten: Option<Version>,
    /// Its newest version from a misrouted record.
    misrouted: Option<Version>,
}

impl Row {
    /// Its newest version ever.
    fn reached(&self) -> Version {
        self.forgotten.map_or(self.newest, |forgotten| forgotten.max(self.newest))
    }

    fn was_routed(&self) -> bool {
        self.forgotten.is_some() || self.newest.is_routed()
    }
}

/// The fold of all changes so far.
#[derive(Debug)]
pub(crate) struct Fold {
    partitions: u32,
    shards: ShardCount,
    /// How long tombstones are kept.
    tombstones: Duration,
    rows: BTreeMap<Member, Row>,
    cells: BTreeMap<(CounterId, u32), Cell>,
    claims: BTreeMap<u32, Claim>,
    /// The partitions whose replay is an open loss.
    replays: BTreeSet<u32>,
    /// The claim under which something was last stored, by partition.
    owners: BTreeMap<u32, u64>,
    /// The offset up to which each partition's records were seen to be finished.
    finished: BTreeMap<u32, u64>,
    /// Amounts that were produced before they were defined, and are in a sum.
    counted: BTreeSet<(u32, u64)>,
    /// How often each rare event happened, by its kind in `faults.rs`.
    pub(crate) rare: BTreeMap<&'static str, u64>,
}

impl Fold {
    /// An empty fold for a topic with this many partitions.
    pub(crate) fn new(partitions: u32, shards: ShardCount, tombstones: Duration) -> Self {
        Self {
            partitions,
            shards,
            tombstones,
            rows: BTreeMap::new(),
            cells: BTreeMap::new(),
            claims: BTreeMap::new(),
            replays: BTreeSet::new(),
            owners: BTreeMap::new(),
            finished: BTreeMap::new(),
            counted: BTreeSet::new(),
            rare: BTreeMap::new(),
        }
    }

    /// Counts a rare event.
    pub(crate) fn happened(&mut self, what: &'static str, times: u64) {
        *self.rare.entry(what).or_default() += times;
    }

    /// Processes the changes since the last call.
    pub(crate) fn follow(&mut self, events: &Events, registers: &Registers) -> anyhow::Result<()> {
        for (at, change) in registers.take() {
            match change {
                Change::Row { pk, sort, old, new } => {
                    let place = format!("the row of {sort:?} in {pk}, which was {old:?} and became {new:?} at {at}");
                    self.row(events, at, (&pk, &sort), (old, new)).context(place)?;
                }
                Change::Claim { partition, old, new } => {
                    let place = format!("the claim of {partition}, which was {old:?} and became {new:?} at {at}");
                    self.claim(events, partition, (old, new)).context(place)?;
                }
                Change::Replays(replays) => self.replays = replays,
                Change::Odd(item) => bail!("no process writes such an item: {item}"),
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        events: &Events,
        at: UnixMillis,
        (pk, sort): (&str, &str),
        (old, new): (Option<Stored>, Option<Stored>),
    ) -> anyhow::Result<()> {
        let RowKey { counter, shard } = pk.parse()?;
        match (ReservedKey::read(sort), old, new) {
            (None, None | Some(Stored::Member { .. }), None | Some(Stored::Member { .. })) => {
                ensure!(counter.name.kind() == CounterKind::Set, "a sum has a member");
                ensure!(shard == self.shards.shard_of(sort), "it is in the wrong shard");
                let member = (counter, UserId::new(sort)?);
                match (member_of(old), member_of(new)) {
                    (_, Some(new)) => self.put(events, at, member, new),
                    (Some(old), None) => self.deleted(at, &member, old),
                    (None, None) => Ok(()),
                }
            }
            (Some(ReservedKey::Cell { topic: TOPIC, partition }), _, Some(Stored::Cell(cell))) => {
                ensure!(counter.name.kind() == CounterKind::Sum, "a set has a cell");
                ensure!(shard == self.shards.shard_of_cell(partition), "it is in the wrong shard");
                self.add(events, (counter, partition), cell)
            }
            _ => bail!("no process makes this change"),
        }
    }

    /// A row takes the value of a newer event than it ever had. A member that was removed long ago may come back in a replay,
    /// or if no claim says yet that its removal is done.
    fn put(
        &mut self,
        events: &Events,
        at: UnixMillis,
        member: Member,
        (version, gone): (Version, Option<u64>),
    ) -> anyhow::Result<()> {
        let said: Vec<bool> = self.places(events, &member, version).map(|(_, is_present)| is_present).collect();
        ensure!(version.generation() == 1 && !said.is_empty(), "no event has this version");
        ensure!(said.contains(&gone.is_none()), "it differs from the event of its version");
        if let Some(gone) = gone {
            let kept = UnixMillis(gone * 1_000).since(at) + UNDER_WAY;
            ensure!(kept >= self.tombstones, "its tombstone expires too early: {kept:?}");
        }
        self.happened("misrouted", u64::from(!version.is_routed()));
        let is_replayed = self.is_replayed(events, &member, version);
        let may_return = !self.is_done(events, &member) || is_replayed;
        let misrouted = (!version.is_routed()).then_some(version);
        // An event that was applied and is not finished is applied again, however long its process was stopped.
        let is_unfinished = self
            .places(events, &member, version)
            .any(|(index, _)| self.finished.get(&index).is_none_or(|finished| *finished <= version.offset().0));
        let Some(row) = self.rows.get_mut(&member) else {
            self.rows.insert(member, Row { now: Some((version, gone)), newest: version, forgotten: None, misrouted });
            return Ok(());
        };
        ensure!(row.now.is_none_or(|(now, _)| now < version), "it goes back");
        // A replay of its partition alone forgets the routed event, unless that is read again as well.
        let home = self.claims.get(&partition_of(member.0.post.as_bytes(), self.partitions));
        let is_told_again = home.is_some_and(|home| home.is_replaying && home.safe <= row.newest.offset().0);
        let is_read = misrouted > row.misrouted || is_unfinished || (is_replayed && !is_told_again);
        let is_new = row.now.is_none() && misrouted.is_some() && is_read;
        if is_new && row.newest.is_routed() {
            (row.forgotten, row.newest) = (Some(row.newest), version);
        } else if version <= row.newest {
            let of = (&self.claims, &self.replays);
            ensure!(may_return, "it comes back after {:?} without a replay: {of:?}", row.newest);
            *self.rare.entry("resurrection").or_default() += 1;
        }
        (row.now, row.newest) = (Some((version, gone)), row.newest.max(version));
        row.misrouted = row.misrouted.max(misrouted);
        Ok(())
    }

    fn deleted(&mut self, at: UnixMillis, member: &Member, old: (Version, Option<u64>)) -> anyhow::Result<()> {
        let gone = old.1.context("a live member is deleted")?;
        ensure!(gone * 1_000 <= at.0, "a tombstone is deleted before it expires");
        self.happened("tombstone_expired", 1);
        self.rows.get_mut(member).context("an unknown row is deleted")?.now = None;
        Ok(())
    }

    /// A cell advances: every event after its old `to` and up to its new one is added once. Events that were produced before
    /// their definition are skipped up to a point, at which the process has learned of the definition.
    fn add(&mut self, events: &Events, place: (CounterId, u32), cell: Cell) -> anyhow::Result<()> {
        let (before, from) = match self.cells.get(&place) {
            Some(cell) => (cell.n, cell.to.offset().0 + 1),
            None => (0, 0),
        };
        let to = cell.to.offset().0;
        ensure!(cell.to == version(true, to) && to >= from, "it does not continue at {from}");
        let (mut sure, mut early) = (0, Vec::new());
        for offset in from..=to {
            let record = events.record(place.1, offset).context("it is past the end of the log")?;
            match &record.effect {
                Some(Effect::Amount { counter, n }) if *counter == place.0 && record.early => early.push((offset, *n)),
                Some(Effect::Amount { counter, n }) if *counter == place.0 => sure += n,
                _ => ensure!(offset < to, "its last record does not add to it"),
            }
        }
        let added = cell.n - before - sure;
        let known = (0..=early.len()).find(|passed| early[*passed..].iter().map(|(_, n)| n).sum::<i64>() == added);
        let known = known.with_context(|| {
            format!("{added} more is added than the events explain, with {early:?} produced before the definition")
        })?;
        self.counted.extend(early[known..].iter().map(|(offset, _)| (place.1, *offset)));
        self.cells.insert(place, cell);
        Ok(())
    }

    /// A claim advances: a take-over increments its number, and everything stored under it must be done.
    fn claim(
        &mut self,
        events: &Events,
        partition: u32,
        (old, new): (Option<Claim>, Option<Claim>),
    ) -> anyhow::Result<()> {
        let (old, new) = (old.unwrap_or_default(), new.context("a claim is deleted")?);
        ensure!(new.n >= old.n && new.greatest >= old.greatest && new.greatest >= new.safe, "it goes back");
        if new.at > old.at {
            let is_same = self.owners.insert(partition, new.n) == Some(new.n);
            ensure!(!is_same || new.safe >= old.safe, "its owner goes back");
        }
        ensure!(new.greatest <= events.end(partition), "it is past the end of the log");
        if let Some(safe_at) = new.safe_at {
            let waits = events.record(partition, new.greatest).filter(|record| record.at < safe_at);
            ensure!(waits.is_none(), "{waits:?} was acknowledged by then and is not done");
        }
        self.happened("claim_taken_over", new.n - old.n);
        self.happened("replay", u64::from(new.is_replaying && !old.is_replaying));
        self.claims.insert(partition, new);
        self.finish(events, partition, new.greatest)
    }

    /// Every record before an offset must be finished: in its row or cell, or rejected with a dead letter.
    fn finish(&mut self, events: &Events, partition: u32, to: u64) -> anyhow::Result<()> {
        let from = self.finished.insert(partition, to).unwrap_or(0);
        for offset in from..to {
            let record = events.record(partition, offset).context("there is no such record")?;
            let done = match &record.effect {
                None => true,
                Some(Effect::Member { counter, member, .. }) => {
                    let is_routed = self.is_routed(counter, partition);
                    let row = self.rows.get(&(counter.clone(), member.clone()));
                    row.is_some_and(|row| Some(version(is_routed, offset)) <= row.forgotten.max(Some(row.newest)))
                }
                Some(Effect::Amount { counter, .. }) => {
                    self.cells.get(&(counter.clone(), partition)).is_some_and(|cell| cell.to >= version(true, offset))
                }
            };
            ensure!(done || record.early, "{partition}:{offset} is stored as done and is not: {record:?}");
        }
        Ok(())
    }

    fn is_routed(&self, counter: &CounterId, partition: u32) -> bool {
        partition_of(counter.post.as_bytes(), self.partitions) == partition
    }

    /// Whether an open loss says that a partition that may contain this event is read again.
    fn is_replayed(&self, events: &Events, member: &Member, of: Version) -> bool {
        let replays =
            |index| self.claims.get(&index).is_some_and(|claim| claim.is_replaying) && self.replays.contains(&index);
        self.places(events, member, of).any(|(index, _)| replays(index))
    }

    /// Every row must be its newest event, unless something is replayed.
    pub(crate) fn stands(&self, events: &Events) -> anyhow::Result<()> {
        if self.claims.values().any(|claim| claim.is_replaying) {
            return Ok(());
        }
        for (member, row) in self.rows.iter().filter(|(member, _)| self.is_done(events, member)) {
            let stands =
                row.now.map_or_else(|| !self.is_present(events, member, row.newest), |now| now.0 == row.newest);
            ensure!(stands, "the row of {member:?} is not its newest: {row:?}");
        }
        Ok(())
    }

    /// Whether a claim says that the newest event of a row is done.
    fn is_done(&self, events: &Events, member: &Member) -> bool {
        let Some(Row { newest, .. }) = self.rows.get(member) else { return false };
        self.places(events, member, *newest)
            .any(|(index, _)| self.claims.get(&index).is_some_and(|claim| newest.offset().0 < claim.greatest))
    }

    /// The partitions that may contain the event with this version and member, and whether it adds the member.
    fn places<'a>(
        &self,
        events: &'a Events,
        (counter, member): &'a Member,
        of: Version,
    ) -> impl Iterator<Item = (u32, bool)> + 'a {
        let home = partition_of(counter.post.as_bytes(), self.partitions);
        (0..self.partitions).filter(move |index| (*index == home) == of.is_routed()).filter_map(move |index| {
            match events.record(index, of.offset().0)?.effect.as_ref()? {
                Effect::Member { counter: at, member: who, present } if (at, who) == (counter, member) => {
                    Some((index, *present))
                }
                _ => None,
            }
        })
    }

    /// Whether an event with this version and member adds the member.
    fn is_present(&self, events: &Events, member: &Member, of: Version) -> bool {
        self.places(events, member, of).any(|(_, is_present)| is_present)
    }

    /// At the end each row must be the newest known event of its member. Returns the resulting value of each counter.
    pub(crate) fn totals(&self, events: &Events) -> anyhow::Result<BTreeMap<CounterId, i64>> {
        let mut last: BTreeMap<Member, Version> = BTreeMap::new();
        for (partition, offset, record) in events.all() {
            let Some(Effect::Member { counter, member, .. }) = &record.effect else { continue };
            let (version, member) =
                (version(self.is_routed(counter, partition), offset), (counter.clone(), member.clone()));
            let newest = self.rows.get(&member).map(|row| row.newest);
            let is_forgotten = self.rows.get(&member).is_some_and(|row| row.forgotten.is_some_and(|it| version <= it));
            let is_forgotten = is_forgotten && version.is_routed() && newest.is_some_and(|newest| !newest.is_routed());
            if !is_forgotten && (!record.early || newest.is_some_and(|newest| newest >= version)) {
                let last = last.entry(member).or_insert(version);
                *last = version.max(*last);
            }
        }
        let mut totals = BTreeMap::new();
        for (member, last) in last {
            let newest = self.rows.get(&member).map(|row| row.newest);
            ensure!(newest == Some(last), "the last event of {member:?} is {last:?}, but its row has {newest:?}");
            *totals.entry(member.0.clone()).or_default() += i64::from(self.is_present(events, &member, last));
        }
        for ((counter, _), cell) in &self.cells {
            *totals.entry(counter.clone()).or_default() += cell.n;
        }
        Ok(totals)
    }
}

fn member_of(stored: Option<Stored>) -> Option<(Version, Option<u64>)> {
    match stored? {
        Stored::Member { version, gone } => Some((version, gone)),
        Stored::Cell(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterName, PostId};

    use super::*;
    use crate::simulation::events::Record;

    const AT: UnixMillis = UnixMillis(1_700_000_000_000);
    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn member() -> Member {
        (CounterId::likes(PostId::new("p").expect("an id")), UserId::new("u").expect("an id"))
    }

    fn views() -> CounterId {
        CounterId { name: CounterName::new("views", CounterKind::Sum).expect("a name"), ..member().0 }
    }

    fn record(present: bool) -> Record {
        let (counter, member) = member();
        Record { effect: Some(Effect::Member { counter, member, present }), early: false, at: AT }
    }

    /// A like, an unlike and a like of one user, and views of 1, 2 and 4, the first of which came before its definition.
    fn events() -> Events {
        let view = |n| Record { effect: Some(Effect::Amount { counter: views(), n }), early: n == 1, at: AT };
        let records = [true, false, true].map(record).into_iter().chain([1, 2, 4].map(view));
        Events { said: [(0, records.collect())].into() }
    }

    fn fold() -> Fold {
        Fold::new(1, ShardCount::DEFAULT, DAY)
    }

    fn gone() -> Option<u64> {
        Some(AT.plus(DAY).0 / 1_000)
    }

    fn put(fold: &mut Fold, offset: u64, gone: Option<u64>) -> bool {
        fold.put(&events(), AT, member(), (version(true, offset), gone)).is_ok()
    }

    #[test]
    fn a_row_is_the_event_of_its_version_and_never_goes_back() {
        for (offset, gone, holds) in [(0, None, true), (1, gone(), true), (1, None, false), (9, None, false)] {
            assert_eq!(put(&mut fold(), offset, gone), holds, "{offset} {gone:?}");
        }
        let mut fold = fold();
        assert!(put(&mut fold, 1, gone()) && !put(&mut fold, 0, None), "an older one takes its place");
        assert!(put(&mut fold, 2, None) && fold.stands(&events()).is_ok());
    }

    #[test]
    fn only_an_expired_tombstone_is_deleted() {
        let mut fold = fold();
        assert!(put(&mut fold, 1, gone()));
        let mut deleted = |at, gone| fold.deleted(at, &member(), (version(true, 1), gone)).is_ok();
        assert!(!deleted(AT, gone()) && !deleted(AT.plus(DAY), None) && deleted(AT.plus(DAY), gone()));
    }

    #[test]
    fn a_cell_adds_each_event_once_and_skips_only_the_first_ones_before_their_definition() {
        let add = |steps: &[(u64, i64)]| {
            let mut fold = fold();
            let mut step =
                |&(to, n): &(u64, i64)| fold.add(&events(), (views(), 0), Cell { n, to: version(true, to) }).is_ok();
            (steps.iter().all(&mut step), fold.counted.len())
        };
        assert_eq!(add(&[(3, 1), (5, 7)]), (true, 1));
        assert_eq!(add(&[(5, 6)]), (true, 0), "the first one was put aside");
        for steps in [&[(5, 7), (5, 13)][..], &[(5, 5)], &[(4, 3), (5, 3)], &[(2, 0)], &[(5, 7), (4, 7)]] {
            assert!(!add(steps).0, "{steps:?}");
        }
    }

    #[test]
    fn counters_equal_the_last_events_and_a_view_that_was_put_aside_has_a_letter() {
        let mut fold = fold();
        assert!(put(&mut fold, 1, gone()));
        assert!(fold.totals(&events()).is_err(), "the like again is no row");
        assert!(put(&mut fold, 2, None));
        fold.add(&events(), (views(), 0), Cell { n: 6, to: version(true, 5) }).expect("all that was defined");
        assert_eq!(fold.totals(&events()).expect("all is done"), BTreeMap::from([(member().0, 1), (views(), 6)]));
        assert_eq!(fold.letters(&events()), [BTreeSet::from([(0, 3)]), BTreeSet::from([(0, 3)])]);
    }

    #[test]
    fn a_misrouted_event_that_is_read_again_alone_may_replace_a_routed_one_that_was_forgotten() {
        let home = partition_of(b"p", 2);
        let events = Events { said: [(home, vec![record(false)]), (1 - home, vec![record(true)])].into() };
        for (is_home_replayed, holds) in [(false, true), (true, false)] {
            let mut fold = Fold::new(2, ShardCount::DEFAULT, DAY);
            let put = |fold: &mut Fold, is_routed, gone| {
                fold.put(&events, AT, member(), (version(is_routed, 0), gone)).expect("a lawful row");
            };
            put(&mut fold, false, None);
            put(&mut fold, true, Some(AT.plus(DAY).0 / 1_000));
            fold.rows.get_mut(&member()).expect("a row").now = None;
            let replays = |is_replaying| Claim { greatest: 1, is_replaying, ..Claim::default() };
            fold.claims = BTreeMap::from([(1 - home, replays(true)), (home, replays(is_home_replayed))]);
            fold.replays = BTreeSet::from([1 - home]);
            fold.finished = BTreeMap::from([(0, 1), (1, 1)]);
            put(&mut fold, false, None);
            fold.claims.values_mut().for_each(|claim| claim.is_replaying = false);
            assert_eq!(fold.stands(&events).is_ok(), holds);
        }
    }

    #[test]
    fn a_claim_waits_for_what_was_acknowledged_before_its_time_and_its_owner_never_goes_back() {
        let claim = Claim { n: 1, ..Claim::default() };
        for (safe_at, holds) in [(AT, true), (AT.plus(DAY), false)] {
            let claim = Claim { safe_at: Some(safe_at), ..claim };
            assert_eq!(fold().claim(&events(), 0, (None, Some(claim))).is_ok(), holds);
        }
        let mut fold = fold();
        assert!(put(&mut fold, 2, None));
        let done = |safe, at| Some(Claim { safe, greatest: 3, at, ..claim });
        assert!(fold.claim(&events(), 0, (None, done(3, AT))).is_ok());
        assert!(fold.claim(&events(), 0, (done(3, AT), done(2, AT.plus(DAY)))).is_err());
    }
}
