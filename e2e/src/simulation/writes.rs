//! Every write of every counter, as the store tells it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, Shard};
use tally_emulator::value::{Item, Value};
use tally_emulator::{ControlError, Emulator};

/// The table of counters.
pub(crate) const COUNTS: &str = "like_counts";

/// One write: the counter before and after it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) counter: CounterId,
    pub(crate) before: Option<Counter>,
    pub(crate) after: Counter,
}

/// The writes that nobody has taken yet; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<Write>>>);

impl Writes {
    /// Is told of those in `emulator` from now on.
    pub(crate) fn watch(&self, emulator: &Emulator) -> Result<(), ControlError> {
        let writes = self.clone();
        emulator.watch(COUNTS, move |changed| {
            let id = changed.new.as_ref().and_then(|new| new.text("post_id")).and_then(|id| id.parse().ok());
            if let (Some(counter), Some(after)) = (id, changed.new.as_ref().and_then(read)) {
                let write = Write { counter, before: changed.old.as_ref().and_then(read), after };
                writes.0.lock().unwrap_or_else(PoisonError::into_inner).push(write);
            }
        })
    }

    /// Those since this was asked last, in order.
    pub(crate) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The counter that an item is; `None` of the reserved row.
fn read(item: &Item) -> Option<Counter> {
    let whole = |name| item.whole(name).and_then(|number| u64::try_from(number).ok());
    let part = |(name, _): (&String, &Value)| {
        let shard = Shard::new(name.strip_prefix('s')?.parse().ok()?)?;
        Some((shard, item.whole(name)?))
    };
    let doubt = match item.get("doubt") {
        Some(Value::Ns(shards)) => {
            shards.iter().filter_map(|shard| Shard::new(shard.to_string().parse().ok()?)).collect()
        }
        _ => BTreeSet::new(),
    };
    Some(Counter {
        likes: item.whole("likes")?,
        parts: item.iter().filter_map(part).collect(),
        version: Place::from_stored(whole("version")?),
        corrections: whole("c").unwrap_or_default(),
        gap: whole("gap").map(Place::from_stored),
        doubt,
        ..Counter::default()
    })
}
