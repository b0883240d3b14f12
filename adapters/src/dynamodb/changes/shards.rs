//! Stores how far each shard of the likes table's DynamoDB stream has been copied to the Kafka topic `changes` (it is
//! `fed` up to there), and which relay, the process that copies, holds its lease: one item of the table `checkpoints`
//! for each stream shard.

use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard};
use tally_core::ports::Outcome;
use tally_core::relay::Fed;
use tally_core::shards::{Lease, Worker};
use tally_core::time::UnixMillis;

use super::super::checkpoints::key;
use super::super::item::{Item, Reader, item, number, text};
use super::super::table::Values;
use super::Changes;

const SHARD: &str = "changes/shard/";
/// How often `store_fed` tries again after another process has stored a position.
const ATTEMPTS: u32 = 8;

/// A stream shard as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShard {
    /// The stream shard.
    pub shard: StreamShard,
    /// The stream shard that it continues.
    pub parent: Option<StreamShard>,
    /// Up to where it is in the log.
    pub fed: Fed,
    /// When all of it was in the log; `None` before.
    pub closed: Option<UnixMillis>,
    /// The relay that reads it.
    pub lease: Option<Lease>,
}

fn id(shard: &StreamShard) -> String {
    format!("{SHARD}{shard}")
}

fn decode_fed(reader: &Reader<'_>) -> Outcome<Fed> {
    Ok(Fed { to: reader.get("fed")?, at: reader.get("fed_at")? })
}

fn decode_lease(reader: &Reader<'_>) -> Outcome<Option<Lease>> {
    let Some(holder) = reader.get("owner")? else { return Ok(None) };
    Ok(Some(Lease { holder: Worker(holder), beat: reader.get("beat")? }))
}

fn decode(reader: &Reader<'_>) -> Outcome<StoredShard> {
    let shard = reader.text("id")?.strip_prefix(SHARD).ok_or_else(|| reader.malformed("id", "no stream shard"))?;
    Ok(StoredShard {
        shard: shard.into(),
        parent: reader.get("parent")?,
        fed: decode_fed(reader)?,
        closed: reader.get("closed")?,
        lease: decode_lease(reader)?,
    })
}

fn later(one: Fed, other: Fed) -> Fed {
    Fed { to: one.to.max(other.to), at: one.at.max(other.at) }
}

impl Changes {
    /// Returns a stream shard, if it is stored.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn shard(&self, shard: &StreamShard) -> Outcome<Option<StoredShard>> {
        self.table().find(key(&id(shard)), decode).await
    }

    /// Returns every stored stream shard of a stream, in the order of their names.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<StoredShard>> {
        self.shards_under(&format!("{SHARD}{label}/")).await
    }

    /// Returns every stored stream shard of this and earlier streams, in the order of their names.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn every_shard(&self) -> Outcome<Vec<StoredShard>> {
        self.shards_under(SHARD).await
    }

    /// Reads the whole table, which is small: a claim per Kafka partition, an item per topic and an item per stream
    /// shard of the last days.
    async fn shards_under(&self, prefix: &str) -> Outcome<Vec<StoredShard>> {
        let scan = self.table().scan(None).filter_expression("begins_with(#id,:prefix)");
        let scan = scan.expression_attribute_names("#id", "id").expression_attribute_values(":prefix", text(prefix));
        let mut shards = Vec::new();
        Box::pin(self.table().scan_all(scan, |item| decode(item).map(|shard| shards.push(shard)))).await?;
        shards.sort_by(|one, other| one.shard.cmp(&other.shard));
        Ok(shards)
    }

    /// Stores a new stream shard that is in the log up to `fed`. Returns it as stored. Safe to repeat: a stored one
    /// stays as it is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn begin(&self, shard: &StreamShard, parent: Option<&StreamShard>, fed: Fed) -> Outcome<StoredShard> {
        let begun = item! {
            "id": text(id(shard)),
            "fed_at": number(fed.at),
            "fed": fed.to.map(|to| text(to.as_str())),
            "parent": parent.map(|parent| text(parent.as_str())),
        };
        self.table().put_new(begun, decode).await
    }

    /// Stores how far a stream shard is in the log, and returns what is stored then. Position and time each only go
    /// forward, since what two processes have found is true together. Safe to repeat for that reason.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the stream shard is not stored: it was never begun, or was
    /// closed and forgotten.
    pub async fn store_fed(&self, shard: &StreamShard, fed: Fed) -> Outcome<Fed> {
        let mut fed = fed;
        for _ in 0..ATTEMPTS {
            let mut values = Values::from([(":at", number(fed.at))]);
            let (mut update, mut condition) = ("SET #fed_at=:at".to_owned(), "#fed_at<=:at AND ".to_owned());
            match fed.to {
                None => condition += "attribute_not_exists(#fed)",
                Some(to) => {
                    let to = values.add(text(to.as_str()));
                    update += &format!(",#fed={to}");
                    condition += &format!("(attribute_not_exists(#fed) OR #fed<={to})");
                }
            }
            let Err(found) = self.table().update_if(key(&id(shard)), &update, &condition, values).await? else {
                return Ok(fed);
            };
            let stored = decode_fed(&self.table().reader(&self.required(shard, found)?))?;
            fed = later(fed, stored);
            if fed == stored {
                return Ok(stored);
            }
        }
        Err(Fault::Transient(format!("{}: too many processes store how far {shard} is", self.table().name)))
    }

    fn required(&self, shard: &StreamShard, found: Option<Item>) -> Outcome<Item> {
        found.ok_or_else(|| Fault::Fatal(format!("{}: stream shard {shard} is not stored", self.table().name)))
    }

    /// Closes a stream shard: all of it is in the log, and its children are begun. Safe to repeat: the first time of
    /// closing stays, and a forgotten shard stays forgotten.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn close(&self, shard: &StreamShard, at: UnixMillis) -> Outcome<()> {
        let update = "SET #closed=if_not_exists(#closed,:at)";
        let close = self.table().update_if(key(&id(shard)), update, "attribute_exists(#id)", [(":at", number(at))]);
        close.await.map(|_| ())
    }

    /// Deletes a closed stream shard, once neither it nor a child of it is listed any more. Safe to repeat: a deleted
    /// one stays deleted, and one that is not closed stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn forget(&self, shard: &StreamShard) -> Outcome<()> {
        self.table().delete_if(key(&id(shard)), "attribute_exists(#closed)", []).await
    }

    /// Takes or renews the lease of a stream shard, if the lease still is as `seen`. Returns the lease to renew next
    /// time, or `None` where another worker was faster. A lease saves double work, and nothing relies on it. Safe to
    /// repeat: the beat moves, so a second copy is refused, and the lease is found to be taken.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the stream shard is not stored.
    pub async fn lease(&self, shard: &StreamShard, holder: &Worker, seen: Option<&Lease>) -> Outcome<Option<Lease>> {
        let ours = text(holder.0.as_str());
        let mut values = Values::from([(":ours", ours), (":one", number(1)), (":none", number(0))]);
        let condition = match seen {
            Some(seen) => {
                [values.same("owner", Some(text(seen.holder.0.as_str()))), values.same("beat", Some(number(seen.beat)))]
            }
            None => ["attribute_exists(#id)".to_owned(), values.same("owner", None)],
        };
        let update = "SET #owner=:ours,#beat=if_not_exists(#beat,:none)+:one";
        let leased = self.table().update_if(key(&id(shard)), update, &condition.join(" AND "), values).await;
        let stands = leased?.or_else(|found| self.required(shard, found))?;
        let lease = decode_lease(&self.table().reader(&stands))?;
        Ok(lease.filter(|lease| lease.holder == *holder))
    }

    /// Gives a lease back. Safe to repeat: a lease given back has no holder. The beat stays, so that no later lease
    /// looks like this one.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn release(&self, shard: &StreamShard, holder: &Worker) -> Outcome<()> {
        let ours = [(":ours", text(holder.0.as_str()))];
        self.table().update_if(key(&id(shard)), "REMOVE #owner", "#owner=:ours", ours).await.map(|_| ())
    }
}
