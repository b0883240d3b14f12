//! Lists of what is trending, compared with the rows: of a window that began before the stack did, they are what the rows say.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tally_core::ids::CounterName;
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use super::Verify;
use super::differences::Differences;
use super::rows::Rows;
use crate::client::Client;
use crate::services::WINDOWS;

/// How long a list may take to have everything: the moment lies some seconds back, and a service that was killed replays.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most that a list has.
const MOST: usize = 100;

/// How many lists were compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ComparedLists {
    compared: usize,
    places: usize,
    /// Of those, the ones that were called exact.
    exact: usize,
    /// Lists of which it is not known what they should be: they begin behind the stack, or say themselves that something is missing.
    unknown: usize,
}

impl Verify<'_> {
    /// Each counter's list over each window, once it has everything.
    pub(super) async fn lists(&self, rows: &Rows) -> anyhow::Result<(ComparedLists, Differences)> {
        let (client, since) = (Client::new(self.0.api), self.0.clock.now());
        let (mut compared, mut differences) = (ComparedLists::default(), Differences::default());
        let deadline = Instant::now() + PATIENCE;
        for definition in self.0.counters.all().iter() {
            for window in WINDOWS {
                let path = format!("/v1/top?counter={}&window={window}&k={MOST}", definition.name.as_str());
                let list = loop {
                    match client.get(&path).await {
                        Ok(list) if list["as_of"].as_u64() >= Some(since.0) => break Ok(list),
                        Ok(list) if Instant::now() >= deadline => break Err(format!("it is of {}", list["as_of"])),
                        Err(error) if Instant::now() >= deadline => break Err(format!("{error:#}")),
                        _ => self.0.clock.sleep(super::LOOK_EVERY).await,
                    }
                };
                match list {
                    Ok(list) => compared.compare(&list, &definition.name, rows, self.0.began, &mut differences),
                    Err(why) => differences.add(|| format!("{path} never had everything: {why}")),
                }
            }
        }
        Ok((compared, differences))
    }
}

/// The first of a counter's rows.
fn first(rows: &Rows, name: &CounterName) -> Vec<(String, i64)> {
    let totals = rows.iter().filter(|(id, found)| id.name == *name && found.total() >= 1);
    let mut totals: Vec<(String, i64)> = totals.map(|(id, found)| (id.post.to_string(), found.total())).collect();
    totals.sort_unstable_by(|(id, count), (other, more)| (Reverse(count), id).cmp(&(Reverse(more), other)));
    totals.truncate(MOST);
    totals
}

impl ComparedLists {
    fn compare(&mut self, list: &Value, name: &CounterName, rows: &Rows, began: UnixMillis, found: &mut Differences) {
        let is_whole = list["from"].as_u64().is_some_and(|from| from < began.0);
        // Before the ledger nothing was in the tables.
        let is_known = list["bound"] == 0 || list["reason"] == "young";
        if !is_whole || !is_known {
            self.unknown += 1;
            return;
        }
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let item = |item: &Value| Some((item["id"].as_str()?.to_owned(), item["count"].as_i64()?));
        let listed: Vec<Option<(String, i64)>> = items.iter().map(item).collect();
        let expected: Vec<Option<(String, i64)>> = first(rows, name).into_iter().map(Some).collect();
        for place in 0..listed.len().max(expected.len()) {
            let (shown, there) = (listed.get(place).cloned().flatten(), expected.get(place).cloned().flatten());
            if shown != there {
                let window = &list["window"];
                found.add(|| format!("{name} over {window}, place {}: listed {shown:?}, by rows {there:?}", place + 1));
            }
        }
        self.compared += 1;
        self.places += expected.len();
        self.exact += usize::from(list["exact"] == true);
    }
}

impl fmt::Display for ComparedLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, places, exact, unknown } = self;
        write!(
            f,
            "{compared} with {places} places compared with the rows, {exact} called exact, {unknown} not comparable"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tally_core::ids::ShardCount;
    use tally_core::ports::ScannedRow;
    use tally_core::weight::Stated;

    use super::*;
    use crate::names::Names;

    fn rows() -> Rows {
        let (names, shards) = (Names::new(1, 1, 0, None), ShardCount::DEFAULT);
        let mut rows = Rows::default();
        for (post, user) in [("b", "u1"), ("a", "u1"), ("c", "u1"), ("c", "u2")] {
            let pk = format!("{post}#{}", shards.shard_of(user));
            rows.take(&ScannedRow { pk, sort: user.to_owned(), stated: Stated::Nothing }, &names, shards);
        }
        rows
    }

    #[test]
    fn a_list_has_to_be_what_the_rows_say_unless_nothing_says_what_it_should_be() {
        let right = json!([{"id": "c", "count": 2}, {"id": "a", "count": 1}, {"id": "b", "count": 1}]);
        let list = |from: u64, claim: (&str, Value), items: &Value| {
            let mut list =
                json!({"from": from, "as_of": 100_000, "window": "10m", "exact": claim.1 == 0, "items": items});
            list[claim.0] = claim.1;
            list
        };
        let exact = || ("bound", json!(0));
        for (list, differs, counts) in [
            (list(1, exact(), &right), 0, (1, 0)),
            (
                list(1, exact(), &json!([{"id": "c", "count": 2}, {"id": "b", "count": 1}, {"id": "a", "count": 1}])),
                2,
                (1, 0),
            ),
            (list(1, exact(), &json!([{"id": "c", "count": 2}])), 2, (1, 0)),
            (list(1, ("reason", json!("young")), &right), 0, (1, 0)),
            (list(1, ("reason", json!("loss")), &json!([])), 0, (0, 1)),
            (list(9, exact(), &json!([])), 0, (0, 1)),
        ] {
            let (mut compared, mut found) = (ComparedLists::default(), Differences::default());
            compared.compare(&list, &CounterName::LIKES, &rows(), UnixMillis(5), &mut found);
            assert_eq!((found.count, (compared.compared, compared.unknown)), (differs, counts), "{list}");
        }
    }
}
