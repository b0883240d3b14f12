//! Asks the API for every list of what is trending again and again while a run goes on, as a client does, and keeps the
//! answers (sightings) for the comparison after the run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;
use tally_core::ids::{CounterKind, CounterName, Region};
use tally_service::Stop;
use tally_trends::{Claim, Reason};

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
        self.claim == Claim::Exact
    }

    /// A moment, and the sighting, from an answer of the API; `None` where it is not one.
    pub(crate) fn read(answer: &Value) -> Option<(u64, Self)> {
        let claim = match (answer["bound"].as_u64(), Reason::deserialize(&answer["reason"]).ok()) {
            (Some(0), None) => Claim::Exact,
            (Some(bound), None) => Claim::Bound(bound),
            (None, Some(reason)) => Claim::Unknown(reason),
            _ => return None,
        };
        if answer["exact"] != (claim == Claim::Exact) {
            return None;
        }
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
    for definition in local.counters.all.iter() {
        let of_a_set = definition.name.kind() == CounterKind::Set;
        let regions = local.ledger.names.regions.iter().filter(|_| of_a_set).cloned().map(Some);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_says_of_which_moment_it_is_and_what_it_claims() {
        let answer = |claim: Value| {
            let mut answer = json!({"from": 40_000, "as_of": 100_000, "items": [{"id": "a", "count": 3}]});
            answer.as_object_mut().unwrap().extend(claim.as_object().unwrap().clone());
            Sighting::read(&answer)
        };
        let sighting = |claim| Some((100, Sighting { from: 40, claim, items: vec![("a".to_owned(), 3)] }));
        assert_eq!(answer(json!({"exact": true, "bound": 0})), sighting(Claim::Exact));
        assert_eq!(answer(json!({"exact": false, "bound": 7})), sighting(Claim::Bound(7)));
        assert_eq!(answer(json!({"exact": false, "reason": "loss"})), sighting(Claim::Unknown(Reason::Loss)));
        // What contradicts itself is no list.
        for bad in
            [json!({"exact": true, "reason": "loss"}), json!({"exact": true, "bound": 7}), json!({"exact": false})]
        {
            assert_eq!(answer(bad), None);
        }
    }
}
