//! What is lost with the checkpoints, written anew: the configuration, and where the numbers of stream shards go on.

use tally_core::definitions::Definitions;
use tally_core::ids::{ShardCount, StreamLabel};
use tally_core::milestone::Ladder;
use tally_core::ports::{Outcome, Registry};
use tally_core::time::UnixMillis;

use super::super::changes::Changes;
use super::super::fault::unless_refused;
use super::super::item::{Item, item, number, text};
use super::super::names::checkpoints::{ADOPTED, CONFIG, COUNTERS, FLOOR, HOMES, ID, MILESTONES, NEXT, SHARDS};
use super::super::watch::LOSS;
use super::{Checkpoints, definitions, registry};

/// A configuration, as an operator has kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub shards: ShardCount,
    pub definitions: Definitions,
    pub ladder: Ladder,
    /// How often a change of a map was announced: more often than any process has read.
    pub announced: u64,
}

impl Checkpoints {
    /// Writes the configuration where there is none, over the tables that are there; whether it did. A loss is stored before:
    /// nothing is known of what the tables hold. Safe to repeat: what is there stays, and one more loss does no harm.
    ///
    /// # Errors
    /// A table is missing, or the store takes no write.
    pub async fn put_config(&self, of: &Configuration, now: UnixMillis) -> Outcome<bool> {
        if self.get(CONFIG).await?.is_some() {
            return Ok(false);
        }
        Changes::new(&self.connection).open_new_loss(now, LOSS, "the configuration was lost").await?;
        let mut config = item([(SHARDS, number(of.shards)), (ADOPTED, number(now))]);
        if of.definitions != Definitions::likes_alone() {
            config.insert(COUNTERS.to_owned(), definitions::encode(&of.definitions));
        }
        if !of.ladder.is_empty() {
            config.insert(MILESTONES.to_owned(), text(of.ladder.to_string()));
        }
        if of.announced > 0 {
            config.insert(HOMES.to_owned(), number(of.announced));
        }
        self.put_new_config(config).await
    }

    /// Has the numbers of the shards of `label` go on with `begins`, where none was given; whether it did. Safe to repeat: what is
    /// there stays.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn put_registry(&self, label: &StreamLabel, begins: &Registry) -> Outcome<bool> {
        let mut stored = item([(ID, text(registry::id(label))), (NEXT, number(begins.next))]);
        stored.extend(begins.floor.map(|floor| (FLOOR.to_owned(), number(floor))));
        self.put_new(stored).await
    }

    pub(super) async fn put_new(&self, stored: Item) -> Outcome<bool> {
        let put = self.connection.client.put_item().table_name(self.table()).set_item(Some(stored));
        let put = put.condition_expression("attribute_not_exists(#id)").expression_attribute_names("#id", ID);
        Ok(unless_refused(self.table(), put.send().await)?.is_some())
    }
}
