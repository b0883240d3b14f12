//! Takes the views that people say over HTTP into the ledger: a cell does not say who added to it, so the comparison has to
//! know of all that this process writes.

use std::sync::Arc;

use async_trait::async_trait;
use tally_core::event::{Deed, decode_value};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;

use crate::counters::{Counted, Counters};
use crate::local::Local;
use crate::names::Names;

/// A producer whose views of the load's posts are in the ledger: open until they are acknowledged, also where the caller
/// gives up before.
pub(crate) struct LedgerProducer {
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) local: Arc<Local>,
}

/// The load's post that a record adds views to, and how many.
fn view(record: &Outgoing<'_>, counters: &Counters, names: &Names) -> Option<(usize, u32)> {
    let views = counters.definition(Counted::Views)?;
    let event = decode_value(record.value, UnixMillis(0), counters.all()).ok()?;
    let Deed::Amount(amount) = event.deed else { return None };
    let post = names.post_index(event.subject())?;
    (event.counter == views.name).then_some((post, u32::try_from(amount).ok()?))
}

#[async_trait]
impl Producer for LedgerProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let Local { counters, ledger, .. } = &*self.local;
        let Some((post, amount)) = view(&record, counters, ledger.names()) else {
            return self.producer.send(record).await;
        };
        let views = ledger.views();
        views.unknown(post, amount);
        let written = self.producer.send(record).await?;
        views.settled(post, amount);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::tests::all;

    #[test]
    fn only_views_of_the_loads_posts_are_heard() {
        let (counters, names) = (all(), Names::new(3, 1, 1, None));
        for (value, heard) in [
            (r#"{"post_id":"post-2","action":"view","n":7}"#, Some((1, 7))),
            (r#"{"post_id":"post-2","action":"view"}"#, Some((1, 1))),
            (r#"{"post_id":"post-4","action":"view","n":7}"#, None),
            (r#"{"post_id":"post-2","user_id":"u","action":"like"}"#, None),
            (r#"{"post_id":"post-2","action":"view","n":0}"#, None),
            ("view", None),
        ] {
            let value = Some(value.as_bytes());
            let record = Outgoing { topic: "likes", partition: None, key: None, value, headers: &[] };
            assert_eq!(view(&record, &counters, &names), heard);
        }
    }
}
