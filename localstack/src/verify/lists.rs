//! Compares the lists of what is trending with DynamoDB's change stream, after a run of the local stack: those that
//! were seen while the run went on, and each list once everything is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tally_core::changes::{Effect, Entry};
use tally_core::ids::{CounterId, CounterName};
use tally_core::ports::{ChangeStream as _, Position};
use tally_core::tally::read;
use tokio::time::Instant;

use crate::local::Local;
use crate::oracle::{Oracle, Sums};
use crate::probe::Client;
use crate::services::WINDOWS;
use crate::verify::compare::Rows;
use crate::verify::sightings::{List, MOST, Sighting, lists};
use crate::verify::{Differences, Verify};

/// How long a list may take to have everything: the moment lies some seconds back, and a service that was killed replays.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of the moments that a list has to be exact at, so many of a hundred are enough.
const ENOUGH: usize = 80;
/// With fewer of them no share is judged.
const FEW: usize = 10;

/// What was seen of one list.
#[derive(Clone, Debug, Default)]
struct Seen {
    moments: usize,
    /// Called exact.
    exact: usize,
    /// What the others say of themselves.
    reasons: BTreeMap<String, usize>,
    /// The log was there before the window and no loss lies in it.
    provable: usize,
    /// Of those, called exact.
    proved: usize,
}

/// How many lists were compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparedLists {
    seen: BTreeMap<List, Seen>,
    /// Sightings whose windows begin before what the stream still has.
    unknown: usize,
    /// Lists of which something was wrong.
    wrong: usize,
    /// Whether to tell of every list.
    each: bool,
}

/// What decides whether a list can be exact, in seconds.
struct Evidence {
    /// The log has everything written after this second.
    since: u64,
    /// When something was lost.
    losses: Vec<u64>,
    /// The stream has everything behind this second.
    whole: u64,
}

impl Evidence {
    fn is_provable(&self, from: u64, moment: u64) -> bool {
        self.since <= from && !self.losses.iter().any(|at| (from..=moment).contains(at))
    }
}

impl Verify<'_> {
    /// Each list once it has everything, and all that were seen before.
    pub(super) async fn lists(&self, rows: &Rows, differences: &mut Differences) -> anyhow::Result<ComparedLists> {
        let (client, lists) = (Client::new(self.0.api), lists(self.0));
        let since = self.0.clock.now().0.div_ceil(1000);
        self.0.screen.step("waiting until lists of what is trending have all of it");
        for list in &lists {
            if let Err(why) = self.until(&client, list, since).await {
                differences.add(|| format!("{list} never had everything: {why}"));
            }
        }
        if self.0.is_disturbed {
            self.exact_again(&client, &lists, differences).await?;
        }
        let (oracle, evidence) = (self.oracle().await?, self.evidence().await?);
        let mut compared = ComparedLists { each: self.0.is_disturbed, ..ComparedLists::default() };
        if evidence.whole == 0 {
            stream_with_rows(&oracle, rows, differences);
            self.stream_with_ledger(&oracle, differences);
        }
        for (list, sightings) in self.0.sightings.seen() {
            let before = differences.count;
            let seen = compared.judge(&list, &sightings, &oracle, &evidence, differences);
            compared.wrong += usize::from(differences.count > before);
            if compared.each && seen.provable >= FEW && seen.proved * 100 < seen.provable * ENOUGH {
                differences.add(|| format!("{list}: exact at {} of {} moments", seen.proved, seen.provable));
            }
            compared.seen.insert(list, seen);
        }
        Ok(compared)
    }

    /// Sightings at a list until it has everything from before this second.
    async fn until(&self, client: &Client, list: &List, since: u64) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let looked = self.0.sightings.look(client, list).await;
            let last = self.0.sightings.last(list);
            match (looked, last) {
                (Ok(()), Some((moment, _))) if moment >= since => return Ok(()),
                (Ok(()), Some((moment, sighting))) if Instant::now() >= deadline => {
                    return Err(format!("it is of {moment} and says {:?}", sighting.claim));
                }
                (Err(error), _) if Instant::now() >= deadline => return Err(format!("{error:#}")),
                _ => self.0.clock.sleep(crate::verify::LOOK_EVERY).await,
            }
        }
    }

    /// A window after the last loss lists are exact again: the shortest window is waited for.
    async fn exact_again(&self, client: &Client, lists: &[List], differences: &mut Differences) -> anyhow::Result<()> {
        self.0.screen.step("waiting for one window without a loss: a minute");
        let shortest: tally_trends::Window = WINDOWS[0].parse()?;
        let last = self.0.clock.now().0 / 1000;
        let patience = Duration::from_secs(shortest.span() * 2) + PATIENCE;
        let shortest = || lists.iter().filter(|list| list.window == WINDOWS[0]);
        let deadline = Instant::now() + patience;
        // All of them again and again: each has moments of its own.
        let mut left: Vec<&List> = shortest().collect();
        while !left.is_empty() && Instant::now() < deadline {
            for list in shortest() {
                // One that cannot be had now is looked at again.
                let _ = self.0.sightings.look(client, list).await;
            }
            let is_exact = |list: &List| {
                self.0.sightings.last(list).is_some_and(|(_, sighting)| sighting.from >= last && sighting.is_exact())
            };
            left.retain(|list| !is_exact(list));
            self.0.clock.sleep(Duration::from_secs(1)).await;
        }
        for list in left {
            differences
                .add(|| format!("{list}: not exact a window after the last loss: {:?}", self.0.sightings.last(list)));
        }
        Ok(())
    }

    async fn evidence(&self) -> anyhow::Result<Evidence> {
        let losses = self.0.engines.store.tables.changes.losses().await?;
        let losses = losses.0.keys().map(|number| number.0 / 1000).collect();
        let since = self.0.began.0.div_ceil(1000);
        let kept = self.0.clock.now().0.saturating_sub(self.0.engines.store.kept.as_millis().try_into()?);
        // What is trimmed goes by the age of a record, and reading it took its time.
        let whole = if kept < self.0.began.0 { 0 } else { kept / 1000 + 60 };
        Ok(Evidence { since, losses, whole })
    }

    /// Everything that the stream still shows.
    async fn oracle(&self) -> anyhow::Result<Oracle> {
        let store = &self.0.engines.store;
        let label = store.tables.stream.info().await?.label;
        let mut oracle = Oracle::default();
        for shard in store.tables.stream.shards(&label).await? {
            let mut iterator = store.tables.stream.iterator(&label, &shard.id, Position::Oldest).await?;
            loop {
                let page = store.tables.stream.records(&iterator, 1_000).await?;
                for entry in page.records.iter().filter_map(read).filter_map(|record| Entry::of(&record)) {
                    let Effect::Weighed { before, after, .. } = entry.effect else { continue };
                    let [before, after] = [before, after].map(|side| (side.region, side.weight));
                    oracle.add(&entry.key.counter, entry.second, before, after);
                }
                match page.next {
                    Some(next) if !page.records.is_empty() => iterator = next,
                    _ => break,
                }
            }
        }
        Ok(oracle)
    }

    /// Regions of the load's members, by its ledger and by the rows' changes.
    fn stream_with_ledger(&self, oracle: &Oracle, differences: &mut Differences) {
        let Local { ledger, counters, .. } = self.0;
        let names = &ledger.names;
        for (counted, definition) in &counters.ours {
            for (index, region) in names.regions.iter().enumerate() {
                let by_stream = oracle.totals(&definition.name, Some(region));
                for (subject, id) in names.subjects(*counted).iter().enumerate() {
                    let members = ledger.members(*counted, subject);
                    let said: i64 = members.values().filter(|from| usize::from(**from) == index).map(|_| 1).sum();
                    let there = by_stream.get(id).copied().unwrap_or(0);
                    if said != there {
                        let name = counted.name();
                        differences
                            .add(|| format!("{name} of {id} in {region}: {said} by what was said, {there} rows"));
                    }
                }
            }
        }
    }
}

/// What the stream tells of comes to what the rows weigh.
fn stream_with_rows(oracle: &Oracle, rows: &Rows, differences: &mut Differences) {
    let of_name = |name: &CounterName| {
        let ids = |(post, sum)| (CounterId { post, name: name.clone() }, sum);
        oracle.totals(name, None).into_iter().map(ids).collect::<Vec<_>>()
    };
    let told: BTreeMap<CounterId, i64> = oracle.names().flat_map(of_name).collect();
    for id in rows.iter().map(|(id, _)| id).chain(told.keys()).collect::<BTreeSet<_>>() {
        let (there, told) = (rows.of(id).total(), told.get(id).copied().unwrap_or(0));
        if there != told {
            differences.add(|| format!("{id}: the rows come to {there}, their changes to {told}"));
        }
    }
}

impl ComparedLists {
    /// Holds every sighting of one list against what it should have been.
    fn judge(
        &mut self,
        list: &List,
        sightings: &BTreeMap<u64, Sighting>,
        oracle: &Oracle,
        evidence: &Evidence,
        differences: &mut Differences,
    ) -> Seen {
        let (mut seen, mut sums) = (Seen::default(), Sums::default());
        for (moment, sighting) in sightings {
            seen.moments += 1;
            let provable = evidence.is_provable(sighting.from, *moment);
            seen.provable += usize::from(provable);
            if sighting.is_exact() {
                seen.exact += 1;
                seen.proved += usize::from(provable);
            } else {
                let reason = sighting.claim.reason().map_or("bound".to_owned(), |reason| format!("{reason:?}"));
                *seen.reasons.entry(reason.to_lowercase()).or_default() += 1;
            }
            if sighting.from < evidence.whole {
                self.unknown += 1;
                continue;
            }
            sums.move_to(oracle, (&list.name, list.region.as_ref()), (sighting.from, *moment));
            let wrong =
                sighting.claim.bound().map(|bound| sums.contradict(bound, &sighting.items, MOST)).unwrap_or_default();
            if let Some(first) = wrong.first() {
                let (claim, places) = (&sighting.claim, wrong.len());
                differences.add(|| format!("{list} at {moment}, {claim:?}: {places} wrong, as {first}"));
            }
        }
        seen
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { moments, exact, reasons, provable, proved } = self;
        write!(f, "{exact} of {moments} moments exact")?;
        for (reason, times) in reasons {
            write!(f, ", {times} {reason}")?;
        }
        write!(f, "; {proved} of {provable} where nothing is lost")
    }
}

/// A line for all, and one for each where things went wrong on purpose.
impl fmt::Display for ComparedLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Seen::default();
        for seen in self.seen.values() {
            all.moments += seen.moments;
            all.exact += seen.exact;
            all.provable += seen.provable;
            all.proved += seen.proved;
            seen.reasons.iter().for_each(|(reason, times)| *all.reasons.entry(reason.clone()).or_default() += times);
        }
        write!(f, "{} lists compared, {} wrong", self.seen.len(), self.wrong)?;
        match all.reasons.keys().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => {}
            ["young"] if all.exact == 0 => write!(f, " (too young to be called exact)")?,
            _ => write!(f, " ({all})")?,
        }
        if self.unknown > 0 {
            write!(f, "; {} not comparable", self.unknown)?;
        }
        for (list, seen) in self.seen.iter().filter(|_| self.each) {
            write!(f, "\n    {:<26} {seen}", list.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_trends::{Claim, Reason};

    use super::*;

    #[test]
    fn only_moments_at_which_nothing_is_lost_have_to_be_exact() {
        let evidence = Evidence { since: 50, losses: vec![100], whole: 0 };
        for (from, moment, provable) in
            [(49, 99, false), (50, 99, true), (50, 100, false), (100, 120, false), (101, 120, true), (10, 20, false)]
        {
            assert_eq!(evidence.is_provable(from, moment), provable, "{from} {moment}");
        }
    }

    #[test]
    fn the_end_says_of_each_list_how_often_it_was_exact_and_finds_one_that_was_not_what_it_said() {
        let list = List { name: CounterName::LIKES, region: None, window: "1m" };
        let sighting = |claim, items: &[(&str, i64)]| Sighting {
            from: 60,
            claim,
            items: items.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect(),
        };
        let sightings = BTreeMap::from([
            (120, sighting(Claim::Exact, &[])),
            (121, sighting(Claim::Exact, &[("a", 1)])),
            (122, sighting(Claim::Unknown(Reason::Clock), &[])),
        ]);
        let evidence = Evidence { since: 1, losses: Vec::new(), whole: 0 };
        let (mut compared, mut found) =
            (ComparedLists { each: true, ..ComparedLists::default() }, Differences::default());
        let seen = compared.judge(&list, &sightings, &Oracle::default(), &evidence, &mut found);
        compared.seen.insert(list.clone(), seen);
        assert_eq!(
            found.listed,
            ["likes over 1m at 121, Exact: 1 wrong, as place 1: listed Some((\"a\", 1)), by the changes None"]
        );
        let said = "1 lists compared, 0 wrong (2 of 3 moments exact, 1 clock; 2 of 3 where nothing is lost)\n    \
                    likes over 1m              2 of 3 moments exact, 1 clock; 2 of 3 where nothing is lost";
        assert_eq!(compared.to_string(), said);
        let young = Seen { moments: 2, reasons: [("young".to_owned(), 2)].into(), ..Seen::default() };
        let compared = ComparedLists { seen: [(list.clone(), young)].into(), ..ComparedLists::default() };
        assert_eq!(compared.to_string(), "1 lists compared, 0 wrong (too young to be called exact)");
        // What the stream no longer shows says nothing of a list.
        let (mut compared, mut found) = (ComparedLists::default(), Differences::default());
        let evidence = Evidence { whole: 61, ..evidence };
        compared.judge(&list, &sightings, &Oracle::default(), &evidence, &mut found);
        assert_eq!((compared.unknown, found.count), (3, 0));
    }
}
