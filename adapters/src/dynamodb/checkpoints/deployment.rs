//! What a deployment was created with, and in which form it is written: the item `config`.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::definitions::Definitions;
use tally_core::format::Format;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::{DeploymentConfig, Outcome};

use super::super::expression::Aliases;
use super::super::fault::fault;
use super::super::item::{Item, Reader};
use super::super::names::checkpoints::{CONFIG, COUNTERS, FORMAT, ID, MILESTONES, SHARDS};
use super::{Checkpoints, definitions, key};

impl Checkpoints {
    fn shard_count(&self, config: &Item) -> Outcome<ShardCount> {
        let reader = Reader::new(self.table(), config);
        ShardCount::new(reader.required_number(SHARDS)?).map_err(|error| reader.malformed(SHARDS, error))
    }

    /// Has a deployment from before there was a format state the first one. Safe to repeat: what is stated stays.
    async fn state_format(&self) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, format] = say.names([ID, FORMAT]);
        let update = format!("SET {format}={}", say.number(Format::WRITTEN));
        let condition = format!("attribute_exists({id}) AND attribute_not_exists({format})");
        self.update_if(CONFIG, say, update, condition).await.map(|_| ())
    }
}

/// What a configuration states; the first format where it states none.
fn format_of(config: &Item) -> Format {
    match config.get(FORMAT) {
        None => Format::Number(Format::WRITTEN),
        Some(AttributeValue::N(digits)) => digits.parse().map_or(Format::Other, Format::Number),
        Some(_) => Format::Other,
    }
}

#[async_trait]
impl DeploymentConfig for Checkpoints {
    /// Safe to repeat: what is there stays.
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        let mut say = Aliases::default();
        let [id, name, format] = say.names([ID, SHARDS, FORMAT]);
        let (wanted, written) = (say.number(shards.unwrap_or(ShardCount::DEFAULT)), say.number(Format::WRITTEN));
        let update = format!("SET {name}={wanted},{format}={written}");
        if let Some(created) = self.update_if(CONFIG, say, update, format!("attribute_not_exists({id})")).await? {
            return self.shard_count(&created);
        }
        let found = self.get(CONFIG).await?.unwrap_or_default();
        let shards = self.shard_count(&found)?;
        if !found.contains_key(FORMAT) {
            self.state_format().await?;
        }
        Ok(shards)
    }

    async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        self.get(CONFIG).await?.map(|found| self.shard_count(&found)).transpose()
    }

    async fn format(&self) -> Outcome<Option<Format>> {
        Ok(self.get(CONFIG).await?.as_ref().map(format_of))
    }

    async fn recent_format(&self) -> Outcome<Option<Format>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(CONFIG)));
        let reply = get.consistent_read(false).send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.item().map(format_of))
    }

    async fn definitions(&self) -> Outcome<Definitions> {
        let found = self.get(CONFIG).await?.unwrap_or_default();
        definitions::decode(&Reader::new(self.table(), &found))
    }

    /// Safe to repeat: the list that has to stand is another afterwards.
    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        let mut say = Aliases::default();
        let counters = say.name(COUNTERS);
        let condition = if *seen == Definitions::likes_alone() {
            format!("attribute_exists({}) AND attribute_not_exists({counters})", say.name(ID))
        } else {
            format!("{counters}={}", say.value(definitions::encode(seen)))
        };
        let update = format!("SET {counters}={}", say.value(definitions::encode(to)));
        Ok(self.update_if(CONFIG, say, update, condition).await?.is_some())
    }

    async fn ladder(&self) -> Outcome<Ladder> {
        let found = self.get(CONFIG).await?.unwrap_or_default();
        Ok(Reader::new(self.table(), &found).parsed(MILESTONES)?.unwrap_or_default())
    }

    /// Safe to repeat: the ladder that has to stand is another afterwards.
    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        let mut say = Aliases::default();
        let [id, milestones] = say.names([ID, MILESTONES]);
        let update = format!("SET {milestones}={}", say.text(to.to_string()));
        let stands = if seen.is_empty() {
            format!("attribute_not_exists({milestones})")
        } else {
            format!("{milestones}={}", say.text(seen.to_string()))
        };
        Ok(self.update_if(CONFIG, say, update, format!("attribute_exists({id}) AND {stands}")).await?.is_some())
    }
}
