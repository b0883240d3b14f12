//! How far each stream shard of the likes table is in the log, and which process relays it.

use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard};
use tally_core::ports::Outcome;
use tally_core::relay::Fed;
use tally_core::shards::{Lease, Worker};
use tally_core::time::UnixMillis;

use super::super::checkpoints::{key, under};
use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::items::Conditional;
use super::super::names::checkpoints::{BEAT, CLOSED, FED, FED_AT, ID, OWNER, PARENT};
use super::Changes;

const SHARD: &str = "changes/shard/";
/// How often a position is merged with the one that another process has just stored.
const ATTEMPTS: u32 = 8;

/// A stream shard as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShard {
    /// The stream shard.
    pub shard: StreamShard,
    /// The one that it continues.
    pub parent: Option<StreamShard>,
    /// How far it is in the log.
    pub fed: Fed,
    /// When all of it was in the log; `None` while it is not.
    pub closed: Option<UnixMillis>,
    /// Who relays it.
    pub lease: Option<Lease>,
}

fn id(shard: &StreamShard) -> String {
    format!("{SHARD}{shard}")
}

fn decode_fed(reader: &Reader<'_>) -> Outcome<Fed> {
    Ok(Fed { to: reader.parsed(FED)?, at: UnixMillis(reader.required_number(FED_AT)?) })
}

fn decode_lease(reader: &Reader<'_>) -> Outcome<Option<Lease>> {
    let Some(holder) = reader.text(OWNER)? else { return Ok(None) };
    Ok(Some(Lease { holder: Worker(holder.to_owned()), beat: reader.required_number(BEAT)? }))
}

fn decode(reader: &Reader<'_>) -> Outcome<StoredShard> {
    let id = reader.required_text(ID)?;
    let shard = id.strip_prefix(SHARD).ok_or_else(|| reader.malformed(ID, "no stream shard"))?;
    Ok(StoredShard {
        shard: shard.into(),
        parent: reader.text(PARENT)?.map(StreamShard::from),
        fed: decode_fed(reader)?,
        closed: reader.number(CLOSED)?.map(UnixMillis),
        lease: decode_lease(reader)?,
    })
}

fn later(one: Fed, other: Fed) -> Fed {
    Fed { to: one.to.max(other.to), at: one.at.max(other.at) }
}

impl Changes {
    /// A stream shard as it is stored, if it is.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn shard(&self, shard: &StreamShard) -> Outcome<Option<StoredShard>> {
        let found = self.items().get(key(&id(shard))).await?;
        found.map(|item| decode(&Reader::new(self.table(), &item))).transpose()
    }

    /// Every stream shard of a stream that is stored, in the order of their names.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<StoredShard>> {
        self.shards_under(&format!("{SHARD}{label}/")).await
    }

    /// Every stream shard of this and earlier streams that is stored, in the order of their names.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn every_shard(&self) -> Outcome<Vec<StoredShard>> {
        self.shards_under(SHARD).await
    }

    async fn shards_under(&self, prefix: &str) -> Outcome<Vec<StoredShard>> {
        let found = under(&self.connection, prefix).await?;
        let shards = found.iter().map(|(_, item)| decode(&Reader::new(self.table(), item)));
        let mut shards = shards.collect::<Outcome<Vec<_>>>()?;
        shards.sort_by(|one, other| one.shard.cmp(&other.shard));
        Ok(shards)
    }

    /// Begins a stream shard behind `fed`, unless it was begun before; answers it as it is. Safe to repeat: what is there
    /// stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn begin(&self, shard: &StreamShard, parent: Option<&StreamShard>, fed: Fed) -> Outcome<StoredShard> {
        let mut begun = item([(ID, text(id(shard))), (FED_AT, number(fed.at))]);
        begun.extend(fed.to.map(|to| (FED.to_owned(), text(to.as_str()))));
        begun.extend(parent.map(|parent| (PARENT.to_owned(), text(parent.as_str()))));
        let stands = self.items().put_new(begun, ID).await?;
        decode(&Reader::new(self.table(), &stands))
    }

    /// Stores how far a stream shard is in the log; answers what is stored then. Position and time each only go forward: what
    /// two processes have found is true together. Safe to repeat for that reason.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the stream shard is not stored: it was never begun, or closed and
    /// forgotten.
    pub async fn store_fed(&self, shard: &StreamShard, fed: Fed) -> Outcome<Fed> {
        let mut fed = fed;
        for _ in 0..ATTEMPTS {
            let mut say = Aliases::default();
            let [position, time] = say.names([FED, FED_AT]);
            let at = say.number(fed.at);
            let (mut update, mut condition) = (format!("SET {time}={at}"), format!("{time}<={at}"));
            match fed.to {
                None => condition += &format!(" AND attribute_not_exists({position})"),
                Some(to) => {
                    let to = say.text(to.as_str());
                    update += &format!(",{position}={to}");
                    condition += &format!(" AND (attribute_not_exists({position}) OR {position}<={to})");
                }
            }
            let Conditional::Refused(found) = self.items().update_if(key(&id(shard)), say, update, condition).await?
            else {
                return Ok(fed);
            };
            let stored = decode_fed(&Reader::new(self.table(), &self.required(shard, found)?))?;
            fed = later(fed, stored);
            if fed == stored {
                return Ok(stored);
            }
        }
        Err(Fault::Transient(format!("{}: too many processes store how far {shard} is", self.table())))
    }

    fn required(&self, shard: &StreamShard, found: Option<Item>) -> Outcome<Item> {
        found.ok_or_else(|| Fault::Fatal(format!("{}: stream shard {shard} is not stored", self.table())))
    }

    /// All of a stream shard is in the log, and its children are begun. Safe to repeat: closed stays closed since then, and
    /// one that is forgotten stays so.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn close(&self, shard: &StreamShard, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id_name, closed] = say.names([ID, CLOSED]);
        let update = format!("SET {closed}=if_not_exists({closed},{})", say.number(at));
        self.items().update_if(key(&id(shard)), say, update, format!("attribute_exists({id_name})")).await.map(|_| ())
    }

    /// Drops a closed stream shard, once neither it nor a child of it is listed any more. Safe to repeat: what is gone stays
    /// gone, and one that is not closed stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn forget(&self, shard: &StreamShard) -> Outcome<()> {
        let mut say = Aliases::default();
        let closed = format!("attribute_exists({})", say.name(CLOSED));
        self.items().delete_if(key(&id(shard)), say, closed).await
    }

    /// Takes or renews the lease of a stream shard, if it still is as `seen`; the lease to renew it by, or `None` where another
    /// worker was faster. A lease saves double work, and nothing relies
    /// on it. Safe to repeat: the beat moves, so a second copy is refused, and the lease is found to be taken.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the stream shard is not stored.
    pub async fn lease(&self, shard: &StreamShard, holder: &Worker, seen: Option<&Lease>) -> Outcome<Option<Lease>> {
        let mut say = Aliases::default();
        let [owner, beat] = say.names([OWNER, BEAT]);
        let (ours, one, none) = (say.text(holder.0.as_str()), say.number(1), say.number(0));
        let condition = match seen {
            Some(seen) => format!("{owner}={} AND {beat}={}", say.text(seen.holder.0.as_str()), say.number(seen.beat)),
            None => format!("attribute_exists({}) AND attribute_not_exists({owner})", say.name(ID)),
        };
        let update = format!("SET {owner}={ours},{beat}=if_not_exists({beat},{none})+{one}");
        let stands = match self.items().update_if(key(&id(shard)), say, update, condition).await? {
            Conditional::Done(item) => item,
            Conditional::Refused(found) => self.required(shard, found)?,
        };
        let lease = decode_lease(&Reader::new(self.table(), &stands))?;
        Ok(lease.filter(|lease| lease.holder == *holder))
    }

    /// Gives a lease back. Safe to repeat: a lease given back has no holder. The beat stays, so that no later lease looks
    /// like this one.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn release(&self, shard: &StreamShard, holder: &Worker) -> Outcome<()> {
        let mut say = Aliases::default();
        let (owner, ours) = (say.name(OWNER), say.text(holder.0.as_str()));
        let (update, condition) = (format!("REMOVE {owner}"), format!("{owner}={ours}"));
        self.items().update_if(key(&id(shard)), say, update, condition).await.map(|_| ())
    }
}
