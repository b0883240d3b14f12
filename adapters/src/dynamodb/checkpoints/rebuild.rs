//! Whether a rebuild of the counters is under way, and below which number every stream shard is done with then.

use tally_core::ids::{Ordinal, StreamLabel};
use tally_core::ports::{Outcome, Registry, StreamRegistry as _};
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::fault::{fault, unless_refused};
use super::super::item::{Reader, item, number, text};
use super::super::names::checkpoints::{AT, FLOOR, ID, OWNER};
use super::{Checkpoints, key};

/// The key of the rebuild that is under way.
const REBUILD: &str = "rebuild";

/// A rebuild that has begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilding {
    pub began: UnixMillis,
    pub floor: Ordinal,
    /// Which process took it up last.
    pub token: String,
}

impl Checkpoints {
    /// With what the numbers of the shards of `label` begin; `None` where a worker has numbered one already.
    ///
    /// # Errors
    /// The table cannot be read, or its stream is a later one.
    pub async fn begins_with(&self, label: &StreamLabel) -> Outcome<Option<Registry>> {
        let earlier = self.latest_before(label).await?;
        if self.registry(label).await?.is_some() {
            return Ok(None);
        }
        Ok(Some(Registry::after(earlier.map(|(_, registry)| registry.next))))
    }

    /// The rebuild that is under way.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn rebuilding(&self) -> Outcome<Option<Rebuilding>> {
        let Some(found) = self.get(REBUILD).await? else { return Ok(None) };
        let reader = Reader::new(self.table(), &found);
        Ok(Some(Rebuilding {
            began: UnixMillis(reader.required_number(AT)?),
            floor: Ordinal(reader.required_number(FLOOR)?),
            token: reader.required_text(OWNER)?.to_owned(),
        }))
    }

    /// Writes down that a rebuild is under way, in the place of one that was. Safe to repeat: it is the same.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn begin_rebuild(&self, of: &Rebuilding) -> Outcome<()> {
        let stored = item([
            (ID, text(REBUILD)),
            (AT, number(of.began)),
            (FLOOR, number(of.floor)),
            (OWNER, text(of.token.as_str())),
        ]);
        let put = self.connection.client.put_item().table_name(self.table()).set_item(Some(stored));
        put.send().await.map(|_| ()).map_err(|error| fault(self.table(), &error))
    }

    /// It has ended; `false` where another process has taken it up since. Safe to repeat: what is gone stays gone.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn end_rebuild(&self, token: &str) -> Outcome<bool> {
        let mut say = Aliases::default();
        let (owner, id, ours) = (say.name(OWNER), say.name(ID), say.text(token));
        let condition = format!("{owner}={ours} OR attribute_not_exists({id})");
        let (names, values) = say.finish();
        let delete = self.connection.client.delete_item().table_name(self.table());
        let delete = delete.set_key(Some(key(REBUILD))).condition_expression(condition);
        let sent = delete.set_expression_attribute_names(names).set_expression_attribute_values(values).send().await;
        Ok(unless_refused(self.table(), sent)?.is_some())
    }
}
