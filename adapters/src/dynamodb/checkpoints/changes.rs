//! What is stored of the ledger of changes: its terms in the configuration, how far each stream shard is in it beside its
//! checkpoint, and an item for each stream shard of which changes are missing.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use tally_core::ledger::{Lapse, Seconds};
use tally_core::lineage::Checkpoint;
use tally_core::ports::{ChangesLedger, ChangesTerms, Outcome};
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::fault::unless_refused;
use super::super::item::{Item, Reader, flag, item, number};
use super::super::names::checkpoints::{
    CHANGES, CONFIG, FED, FED_AT, FED_END, FIRST, FROM, G, ID, LAST, PARTITIONS, SINCE,
};
use super::{Checkpoints, key, shard, under};

/// Where lapses are kept, each under the number of its stream shard.
const LAPSES: &str = "losses/";

fn lapse_id(shard: Ordinal) -> String {
    format!("{LAPSES}{shard}")
}

impl Checkpoints {
    fn terms(&self, config: &Item) -> Outcome<Option<ChangesTerms>> {
        let Some(terms) = Reader::new(self.table(), config).map(CHANGES)? else { return Ok(None) };
        let reader = Reader::new(self.table(), terms);
        Ok(Some(ChangesTerms {
            partitions: reader.required_number(PARTITIONS)?,
            from: Ordinal(reader.required_number(FROM)?),
            since: reader.number(SINCE)?.map(UnixMillis),
        }))
    }

    /// Updates the checkpoint of a stream shard; one that refuses has to be there.
    async fn say(&self, label: &StreamLabel, shard: &StreamShardId, say: Aliases, to: [String; 2]) -> Outcome<()> {
        let [update, condition] = to;
        match self.update_if(&shard::id(label, shard), say, update, condition).await? {
            Some(_) => Ok(()),
            None => self.require(label, shard).await,
        }
    }
}

#[async_trait]
impl ChangesLedger for Checkpoints {
    async fn changes(&self) -> Outcome<Option<ChangesTerms>> {
        let found = self.get(CONFIG).await?.unwrap_or_default();
        self.terms(&found)
    }

    /// Safe to repeat: what stands stays.
    async fn begin_changes(&self, partitions: u32, from: Ordinal) -> Outcome<ChangesTerms> {
        let mut say = Aliases::default();
        let [id, changes] = say.names([ID, CHANGES]);
        let terms = item([(PARTITIONS, number(partitions)), (FROM, number(from))]);
        let update = format!("SET {changes}={}", say.value(AttributeValue::M(terms)));
        let condition = format!("attribute_exists({id}) AND attribute_not_exists({changes})");
        let config = match self.update_if(CONFIG, say, update, condition).await? {
            Some(config) => config,
            None => self.required(CONFIG).await?,
        };
        let terms = self.terms(&config)?;
        terms.ok_or_else(|| Reader::new(self.table(), &config).malformed(CHANGES, "missing"))
    }

    /// Safe to repeat: what is stated stays.
    async fn changes_complete(&self, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [changes, since] = say.names([CHANGES, SINCE]);
        let update = format!("SET {changes}.{since}={}", say.number(at));
        let condition = format!("attribute_exists({changes}) AND attribute_not_exists({changes}.{since})");
        self.update_if(CONFIG, say, update, condition).await.map(|_| ())
    }

    /// Safe to repeat: the condition is false afterwards.
    async fn adopt(&self, label: &StreamLabel, checkpoint: &Checkpoint) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, fed, at] = say.names([ID, FED, FED_AT]);
        let mut update = format!("SET {at}={}", say.number(checkpoint.at));
        if let Some(sequence) = checkpoint.sequence {
            update += &format!(",{fed}={}", say.text(sequence.as_str()));
        }
        if checkpoint.closed {
            update += &format!(",{}={}", say.name(FED_END), say.value(flag(true)));
        }
        let absent = [&fed, &at].map(|name| format!("attribute_not_exists({name})")).join(" AND ");
        let condition = format!("attribute_exists({id}) AND {absent}");
        self.update_if(&shard::id(label, &checkpoint.id), say, update, condition).await.map(|_| ())
    }

    /// Safe to repeat: both move forward only. Where the time that stands is later, the position moves alone.
    async fn fed(&self, label: &StreamLabel, shard: &StreamShardId, to: Sequence, at: UnixMillis) -> Outcome<()> {
        for with_time in [true, false] {
            let mut say = Aliases::default();
            let [id, fed] = say.names([ID, FED]);
            let reached = say.text(to.as_str());
            let mut update = format!("SET {fed}={reached}");
            let mut condition = format!("attribute_exists({id}) AND (attribute_not_exists({fed}) OR {fed}<{reached})");
            if with_time {
                let (time, now) = (say.name(FED_AT), say.number(at));
                update += &format!(",{time}={now}");
                condition += &format!(" AND (attribute_not_exists({time}) OR {time}<={now})");
            }
            if self.update_if(&shard::id(label, shard), say, update, condition).await?.is_some() {
                return Ok(());
            }
        }
        self.require(label, shard).await
    }

    /// Safe to repeat: the time moves forward only.
    async fn fed_at(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, time] = say.names([ID, FED_AT]);
        let now = say.number(at);
        let condition = format!("attribute_exists({id}) AND (attribute_not_exists({time}) OR {time}<{now})");
        self.say(label, shard, say, [format!("SET {time}={now}"), condition]).await
    }

    /// Safe to repeat: what has ended stays so, and what is forgotten is not put again.
    async fn fed_end(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, time, end] = say.names([ID, FED_AT, FED_END]);
        let update = format!("SET {end}={},{time}={}", say.value(flag(true)), say.number(at));
        self.update_if(&shard::id(label, shard), say, update, format!("attribute_exists({id})")).await.map(|_| ())
    }

    /// Safe to repeat: the first second only falls, and the last only rises.
    async fn put_lapse(&self, Lapse { shard, seconds }: Lapse) -> Outcome<()> {
        let id = lapse_id(shard);
        let mut say = Aliases::default();
        let [g, first, last] = say.names([G, FIRST, LAST]);
        let (begins, ends) = (say.number(seconds.first), say.number(seconds.last));
        let set = format!("{g}={},{first}=if_not_exists({first},{begins})", say.number(shard));
        let condition = format!("attribute_not_exists({last}) OR {last}<{ends}");
        self.update_if(&id, say, format!("SET {set},{last}={ends}"), condition).await?;
        let mut say = Aliases::default();
        let (first, begins) = (say.name(FIRST), say.number(seconds.first));
        let (update, condition) = (format!("SET {first}={begins}"), format!("{first}>{begins}"));
        self.update_if(&id, say, update, condition).await.map(|_| ())
    }

    async fn lapses(&self) -> Outcome<Vec<Lapse>> {
        let found = under(&self.connection, LAPSES).await?;
        let lapses = found.iter().map(|(_, item)| {
            let reader = Reader::new(self.table(), item);
            let seconds = Seconds { first: reader.required_number(FIRST)?, last: reader.required_number(LAST)? };
            Ok(Lapse { shard: Ordinal(reader.required_number(G)?), seconds })
        });
        let mut lapses = lapses.collect::<Outcome<Vec<_>>>()?;
        lapses.sort_unstable();
        Ok(lapses)
    }

    /// Safe to repeat: what is gone stays gone.
    async fn drop_lapse(&self, Lapse { shard, seconds }: Lapse) -> Outcome<()> {
        let mut say = Aliases::default();
        let (last, then) = (say.name(LAST), say.number(seconds.last));
        let (names, values) = say.finish();
        let delete = self
            .connection
            .client
            .delete_item()
            .table_name(self.table())
            .set_key(Some(key(&lapse_id(shard))))
            .condition_expression(format!("{last}={then}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), delete.send().await).map(|_| ())
    }
}
