//! Open losses of stream: one item, a map from each loss to what is known of it, so that one read says whether any
//! answer is exact.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::fault::Fault;
use tally_core::ports::{Gap, GapId, Outcome};
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{DETAIL, GAPS, ID, KIND, OPEN, OPENED};
use super::Checkpoints;

fn encode(gap: &Gap) -> AttributeValue {
    AttributeValue::M(item([
        (KIND, text(gap.kind.as_str())),
        (DETAIL, text(gap.detail.as_str())),
        (OPENED, number(gap.opened)),
    ]))
}

fn decode(table: &str, found: &Item) -> Outcome<Vec<Gap>> {
    let reader = Reader::new(table, found);
    let open = reader.map(OPEN)?.into_iter().flatten();
    let gaps = open.map(|(id, entry)| {
        let AttributeValue::M(entry) = entry else { return Err(reader.malformed(id, "not a map")) };
        let entry = Reader::new(table, entry);
        Ok(Gap {
            id: GapId(id.clone()),
            kind: entry.required_text(KIND)?.to_owned(),
            detail: entry.required_text(DETAIL)?.to_owned(),
            opened: UnixMillis(entry.required_number(OPENED)?),
        })
    });
    let mut gaps = gaps.collect::<Outcome<Vec<_>>>()?;
    gaps.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(gaps)
}

impl Checkpoints {
    pub(super) async fn open_gaps(&self) -> Outcome<Vec<Gap>> {
        let found = self.get(GAPS).await?;
        found.map_or(Ok(Vec::new()), |found| decode(self.table(), &found))
    }

    /// Puts `gap` unless it stands with the same or a later time; answers what stands. Safe to repeat.
    pub(super) async fn put_gap(&self, gap: Gap) -> Outcome<Gap> {
        let mut say = Aliases::default();
        let [open, id, opened] = say.names([OPEN, &gap.id.0, OPENED]);
        let (entry, now) = (say.value(encode(&gap)), say.number(gap.opened));
        let update = format!("SET {open}.{id}={entry}");
        let later = format!("{open}.{id}.{opened}<{now}");
        let condition = format!("attribute_exists({open}) AND (attribute_not_exists({open}.{id}) OR {later})");
        let (again, repeated) = (update.clone(), condition.clone());
        if self.update_if(GAPS, say.clone(), update, condition).await?.is_some() {
            return Ok(gap);
        }
        self.create_map().await?;
        if self.update_if(GAPS, say, again, repeated).await?.is_some() {
            return Ok(gap);
        }
        let standing = self.open_gaps().await?.into_iter().find(|standing| standing.id == gap.id);
        standing.ok_or_else(|| Fault::Transient(format!("{}: gap {} was closed meanwhile", self.table(), gap.id.0)))
    }

    /// Closes the gap if it is still the one opened then. Safe to repeat: a gap opened again has a later time.
    pub(super) async fn remove_gap(&self, gap: &Gap) -> Outcome<()> {
        let mut say = Aliases::default();
        let [open, id, opened] = say.names([OPEN, &gap.id.0, OPENED]);
        let then = say.number(gap.opened);
        let (update, condition) = (format!("REMOVE {open}.{id}"), format!("{open}.{id}.{opened}={then}"));
        self.update_if(GAPS, say, update, condition).await.map(|_| ())
    }

    /// The map itself, before the first gap. Safe to repeat: a map that is there stays.
    async fn create_map(&self) -> Outcome<()> {
        let mut say = Aliases::default();
        let [open, id] = say.names([OPEN, ID]);
        let empty = say.value(AttributeValue::M(Item::new()));
        let (update, condition) = (format!("SET {open}={empty}"), format!("attribute_not_exists({id})"));
        self.update_if(GAPS, say, update, condition).await.map(|_| ())
    }
}
