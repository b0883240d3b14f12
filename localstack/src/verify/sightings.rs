//! Sightings of every list of what is trending while a run goes on, as a client of the API does, and what the lists have to be by
//! the records of the change stream.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterKind, CounterName, PostId, Region};
use tally_core::tally::Record;
use tally_service::Stop;

use crate::local::Local;
use crate::probe::Client;
use crate::services::WINDOWS;

/// The most that a list has.
pub(crate) const MOST: usize = 100;

/// Sightings at one list in a run, about: what is kept is bounded also in a long one.
const LOOKS: u32 = 300;

/// A list that there is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct List {
    pub(crate) name: CounterName,
    /// All regions together where there is none.
    pub(crate) region: Option<Region>,
    pub(crate) window: &'static str,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name.as_str())?;
        if let Some(region) = &self.region {
            write!(f, " in {region}")?;
        }
        write!(f, " over {}", self.window)
    }
}

/// What a list says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is off by so much at most; by nothing where it is exact.
    Bound(u64),
    /// It is not known, and why.
    Unknown(String),
}

/// A list as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// It has the seconds behind this one.
    pub(crate) from: u64,
    pub(crate) claim: Claim,
    pub(crate) items: Vec<(String, i64)>,
}

impl Sighting {
    pub(crate) fn is_exact(&self) -> bool {
        self.claim == Claim::Bound(0)
    }

    /// A moment, and the sighting, from an answer of the API; `None` where it is not one.
    pub(crate) fn read(answer: &Value) -> Option<(u64, Self)> {
        let claim = match (answer["bound"].as_u64(), answer["reason"].as_str()) {
            (Some(bound), None) if answer["exact"] == (bound == 0) => Claim::Bound(bound),
            (None, Some(reason)) if answer["exact"] == false => Claim::Unknown(reason.to_owned()),
            _ => return None,
        };
        let item = |item: &Value| Some((item["id"].as_str()?.to_owned(), item["count"].as_i64()?));
        let items = answer["items"].as_array()?.iter().map(item).collect::<Option<Vec<_>>>()?;
        Some((answer["as_of"].as_u64()? / 1000, Self { from: answer["from"].as_u64()? / 1000, claim, items }))
    }
}

/// What was seen so far: of each list its moments, each once.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<BTreeMap<List, BTreeMap<u64, Sighting>>>);

impl Sightings {
    pub(crate) fn seen(&self) -> BTreeMap<List, BTreeMap<u64, Sighting>> {
        self.0.lock().clone()
    }

    /// The latest moment of a list that was seen.
    pub(crate) fn last(&self, list: &List) -> Option<(u64, Sighting)> {
        let seen = self.0.lock();
        seen.get(list)?.last_key_value().map(|(moment, sighting)| (*moment, sighting.clone()))
    }

    /// Asks for a list once, and keeps what it is.
    ///
    /// # Errors
    /// There is none, or no list was answered.
    pub(crate) async fn look(&self, client: &Client, list: &List) -> anyhow::Result<()> {
        let List { name, region, window } = list;
        let region = region.as_ref().map(|region| format!("&region={region}")).unwrap_or_default();
        let path = format!("/v1/top?counter={}{region}&window={window}&k={MOST}", name.as_str());
        let answer = client.get(&path).await?;
        let sighting = Sighting::read(&answer);
        let (moment, sighting) = sighting.ok_or_else(|| anyhow::anyhow!("{path} answers no list: {answer}"))?;
        let mut seen = self.0.lock();
        let of_list = seen.entry(list.clone()).or_default();
        // What was called exact once is held to it, also where the list is not that sure any more.
        if !of_list.get(&moment).is_some_and(Sighting::is_exact) {
            of_list.insert(moment, sighting);
        }
        Ok(())
    }
}

/// Every list that there is: of each counter over each window, and of sets in each region of the load.
pub(crate) fn lists(local: &Local) -> Vec<List> {
    let mut lists = Vec::new();
    for definition in local.counters.all().iter() {
        let of_a_set = definition.name.kind() == CounterKind::Set;
        let regions = local.ledger.names.regions().iter().filter(|_| of_a_set).cloned().map(Some);
        for region in std::iter::once(None).chain(regions) {
            let list = |window| List { name: definition.name.clone(), region: region.clone(), window };
            lists.extend(WINDOWS.map(list));
        }
    }
    lists
}

/// Looks at all lists in a run that is so long, until it is stopped.
pub(crate) async fn watch(local: Arc<Local>, duration: Duration, stop: Stop) -> anyhow::Result<()> {
    let (client, lists) = (Client::new(local.api), lists(&local));
    let every = (duration / LOOKS).max(Duration::from_secs(1));
    loop {
        let are_there = local.board.lock().trending.is_some();
        for list in lists.iter().filter(|_| are_there) {
            // One that is not there yet is looked at the next time.
            if stop.unless_requested(local.sightings.look(&client, list)).await.is_err() {
                return Ok(());
            }
        }
        if stop.unless_requested(local.clock.sleep(every)).await.is_err() {
            return Ok(());
        }
    }
}

/// What changed the sums of one counter in one region, or in all: second by second.
type Seconds = BTreeMap<u64, Vec<(PostId, i64)>>;

/// Every change that the stream tells of.
#[derive(Debug, Default)]
pub(super) struct Oracle(BTreeMap<(CounterName, Option<Region>), Seconds>);

impl Oracle {
    pub(super) fn take(&mut self, record: &Record) {
        let Some(Entry { key, effect: Effect::Weighed { before, after, .. }, second, .. }) = Entry::of(record) else {
            return;
        };
        let (subject, counter) = (key.counter.post, key.counter.name);
        let mut add = |region: Option<Region>, by: i64| {
            let seconds = self.0.entry((counter.clone(), region)).or_default();
            seconds.entry(second).or_default().push((subject.clone(), by));
        };
        add(None, after.weight - before.weight);
        for (Side { region, weight, .. }, sign) in [(before, -1), (after, 1)] {
            if region.is_some() && weight != 0 {
                add(region, sign * weight);
            }
        }
    }

    /// What came to each subject of a counter over all time.
    pub(super) fn totals(&self, name: &CounterName, region: Option<&Region>) -> BTreeMap<PostId, i64> {
        let mut sums = Sums::default();
        if let Some(seconds) = self.0.get(&(name.clone(), region.cloned())) {
            seconds.values().flatten().for_each(|(subject, by)| sums.add(subject, *by));
        }
        sums.0
    }

    /// The counters that anything was changed of.
    pub(super) fn names(&self) -> impl Iterator<Item = &CounterName> {
        self.0.keys().filter(|(_, region)| region.is_none()).map(|(name, _)| name)
    }

    /// A window of one list, which only moves forward.
    pub(super) fn window(&self, list: &List) -> Sliding<'_> {
        let seconds = self.0.get(&(list.name.clone(), list.region.clone()));
        Sliding { seconds, sums: Sums::default(), from: 0, to: 0 }
    }
}

/// What subjects come to, without those that come to nothing.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<PostId, i64>);

impl Sums {
    fn add(&mut self, subject: &PostId, by: i64) {
        let sum = self.0.entry(subject.clone()).or_default();
        *sum += by;
        if *sum == 0 {
            self.0.remove(subject);
        }
    }

    fn of(&self, subject: &str) -> i64 {
        PostId::new(subject).ok().and_then(|subject| self.0.get(&subject).copied()).unwrap_or(0)
    }

    /// The list that they make.
    fn first(&self) -> Vec<(&str, i64)> {
        let mut all: Vec<(&str, i64)> =
            self.0.iter().filter(|(_, sum)| **sum >= 1).map(|(subject, sum)| (subject.as_str(), *sum)).collect();
        all.sort_unstable_by_key(|(subject, sum)| (Reverse(*sum), *subject));
        all.truncate(MOST);
        all
    }

    /// What of `sighting` is not as it claims, place by place; nothing of a sighting that claims nothing.
    pub(super) fn contradict(&self, sighting: &Sighting) -> Vec<String> {
        let bound = match sighting.claim {
            Claim::Unknown(_) => return Vec::new(),
            Claim::Bound(0) => return self.differ(sighting),
            Claim::Bound(bound) => i64::try_from(bound).unwrap_or(i64::MAX),
        };
        let listed = sighting.items.iter().filter(|(subject, count)| (count - self.of(subject)).abs() > bound);
        let mut wrong: Vec<String> = listed
            .map(|(subject, count)| format!("{subject} has {count}, and {} by the stream", self.of(subject)))
            .collect();
        let last = sighting.items.get(MOST - 1).map_or(0, |(_, count)| *count);
        let unlisted = self.0.iter().filter(|(subject, _)| sighting.items.iter().all(|(id, _)| id != subject.as_str()));
        wrong.extend(
            unlisted
                .filter(|(_, sum)| **sum > last.saturating_add(bound))
                .map(|(subject, sum)| format!("{subject} with {sum} is not listed")),
        );
        wrong
    }

    fn differ(&self, sighting: &Sighting) -> Vec<String> {
        let expected = self.first();
        let listed = |place: usize| sighting.items.get(place).map(|(subject, count)| (subject.as_str(), *count));
        (0..expected.len().max(sighting.items.len()))
            .map(|place| (place + 1, listed(place), expected.get(place).copied()))
            .filter(|(_, listed, right)| listed != right)
            .map(|(place, listed, right)| format!("place {place}: listed {listed:?}, by the stream {right:?}"))
            .collect()
    }
}

/// The sums of one list from one second to another.
pub(super) struct Sliding<'a> {
    seconds: Option<&'a Seconds>,
    sums: Sums,
    from: u64,
    to: u64,
}

impl Sliding<'_> {
    /// The sums behind the second `from` and up to the second `to`; neither goes back.
    pub(super) fn moved_to(&mut self, from: u64, to: u64) -> &Sums {
        let Some(seconds) = self.seconds else { return &self.sums };
        let (from, to) = (from.max(self.from), to.max(self.to));
        let between = |after, to| seconds.range((Excluded(after), Included(to))).flat_map(|(_, changes)| changes);
        for (subject, by) in between(self.to, to) {
            self.sums.add(subject, *by);
        }
        for (subject, by) in between(self.from, from) {
            self.sums.add(subject, -by);
        }
        (self.from, self.to) = (from, to);
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tally_core::ids::{CounterId, MemberKey, RowKey, Sequence, ShardCount};
    use tally_core::tally::RecordKind;
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn an_answer_says_of_which_moment_it_is_and_what_it_claims() {
        let answer = |claim: Value| {
            let mut answer = json!({"from": 40_000, "as_of": 100_000, "items": [{"id": "a", "count": 3}]});
            answer.as_object_mut().unwrap().extend(claim.as_object().unwrap().clone());
            Sighting::read(&answer)
        };
        let sighting = |claim| Some((100, Sighting { from: 40, claim, items: vec![("a".to_owned(), 3)] }));
        assert_eq!(answer(json!({"exact": true, "bound": 0})), sighting(Claim::Bound(0)));
        assert_eq!(answer(json!({"exact": false, "bound": 7})), sighting(Claim::Bound(7)));
        assert_eq!(answer(json!({"exact": false, "reason": "loss"})), sighting(Claim::Unknown("loss".to_owned())));
        // What contradicts itself is no list.
        for bad in
            [json!({"exact": true, "reason": "loss"}), json!({"exact": true, "bound": 7}), json!({"exact": false})]
        {
            assert_eq!(answer(bad), None);
        }
    }

    fn region(name: &str) -> Option<Region> {
        Region::new(name)
    }

    fn record(second: u64, post: &str, weights: (i64, i64), regions: (Option<Region>, Option<Region>)) -> Record {
        let (id, member) = (CounterId::likes(PostId::new(post).unwrap()), MemberKey::new("u").unwrap());
        let key = RowKey::of(&id, "u", ShardCount::DEFAULT);
        let side = |weight, region| Side { weight, region, v: None };
        let (before, after) = (side(weights.0, regions.0), side(weights.1, regions.1));
        let kind = RecordKind::Row { key, member, before, after };
        Record { sequence: Sequence::from(1), written: UnixMillis(second * 1000), kind }
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        for record in [
            record(10, "a", (0, 1), (None, region("eu"))),
            record(20, "b", (0, 1), (None, region("us"))),
            record(20, "b", (0, 1), (None, region("us"))),
            // A like again from elsewhere, and an unlike.
            record(30, "a", (1, 1), (region("eu"), region("us"))),
            record(40, "b", (1, 0), (region("us"), None)),
        ] {
            oracle.take(&record);
        }
        oracle
    }

    fn list(place: Option<Region>) -> List {
        List { name: CounterName::LIKES, region: place, window: "1m" }
    }

    fn sighting(claim: Claim, items: &[(&str, i64)]) -> Sighting {
        Sighting { from: 0, claim, items: items.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect() }
    }

    #[test]
    fn a_window_has_what_rows_gained_in_it_in_each_region() {
        let oracle = oracle();
        let mut all = oracle.window(&list(None));
        assert_eq!(all.moved_to(0, 19).first(), [("a", 1)]);
        assert_eq!(all.moved_to(0, 30).first(), [("b", 2), ("a", 1)]);
        assert_eq!(all.moved_to(10, 40).first(), [("b", 1)]);
        let mut eu = oracle.window(&list(region("eu")));
        assert_eq!(eu.moved_to(0, 29).first(), [("a", 1)]);
        assert_eq!(eu.moved_to(0, 30).first(), []);
        let mut us = oracle.window(&list(region("us")));
        assert_eq!(us.moved_to(0, 40).first(), [("a", 1), ("b", 1)]);
        let totals = oracle.totals(&CounterName::LIKES, region("us").as_ref());
        assert_eq!(totals.values().copied().collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_list_that_is_called_exact_and_is_not_is_found_and_so_is_one_that_is_off_by_more_than_its_bound() {
        let oracle = oracle();
        let mut all = oracle.window(&list(None));
        let sums = all.moved_to(0, 30);
        for (claim, items, wrong) in [
            (Claim::Bound(0), &[("b", 2), ("a", 1)][..], 0),
            (Claim::Bound(0), &[("b", 2)], 1),
            (Claim::Bound(0), &[("b", 3), ("a", 1)], 1),
            (Claim::Bound(0), &[("a", 1), ("b", 2)], 2),
            (Claim::Bound(1), &[("b", 3), ("a", 1)], 0),
            (Claim::Bound(1), &[("b", 4), ("a", 1)], 1),
            (Claim::Bound(1), &[("a", 1)], 1),
            (Claim::Bound(2), &[("a", 1)], 0),
            (Claim::Unknown("loss".to_owned()), &[], 0),
        ] {
            let sighting = sighting(claim, items);
            assert_eq!(sums.contradict(&sighting).len(), wrong, "{sighting:?}");
        }
    }
}
