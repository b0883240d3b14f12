//! Open losses of stream: one item, a map from each loss to what is known of it, and beside it how far the counters are, so
//! that one read says whether any answer is exact, and what it includes.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::fault::Fault;
use tally_core::ports::{Gap, GapId, Outcome, Standing, Told};
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{AS_OF, DETAIL, GAPS, ID, KIND, OPEN, OPENED, TOLD};
use super::Checkpoints;

/// How often a change of one gap is tried while others change it.
const ATTEMPTS: usize = 10;

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
    pub(super) async fn read_gaps(&self) -> Outcome<Standing> {
        let Some(found) = self.get(GAPS).await? else { return Ok(Standing::default()) };
        let reader = Reader::new(self.table(), &found);
        let told = match reader.number(AS_OF)? {
            Some(as_of) => Some(Told { as_of: UnixMillis(as_of), times: reader.required_number(TOLD)? }),
            None => None,
        };
        Ok(Standing { gaps: decode(self.table(), &found)?, told })
    }

    /// Says how far the counters are, with a map of no gaps where there was none yet.
    pub(super) async fn put_told(&self, now: UnixMillis, limit: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [open, as_of, told] = say.names([OPEN, AS_OF, TOLD]);
        let (empty, now, one) = (say.value(AttributeValue::M(Item::new())), say.number(now), say.number(1));
        let limit = say.number(limit);
        let update = format!("SET {open}=if_not_exists({open},{empty}),{as_of}={now} ADD {told} {one}");
        let condition = format!("attribute_not_exists({as_of}) OR {as_of}<={now} OR {as_of}>{limit}");
        self.update_if(GAPS, say, update, condition).await.map(|_| ())
    }

    /// Puts `gap`, its time behind that of the one that stands; answers it as put. Safe to repeat: it is opened later.
    pub(super) async fn put_gap(&self, gap: Gap) -> Outcome<Gap> {
        for _ in 0..ATTEMPTS {
            let item = self.get(GAPS).await?;
            let Some(item) = item else {
                self.create_map().await?;
                continue;
            };
            let open = decode(self.table(), &item)?;
            let standing = open.into_iter().find(|standing| standing.id == gap.id).map(|standing| standing.opened);
            let opened = standing.map_or(gap.opened, |standing| gap.opened.max(UnixMillis(standing.0 + 1)));
            let gap = Gap { opened, ..gap.clone() };
            if self.replace(&gap, standing).await? {
                return Ok(gap);
            }
        }
        Err(Fault::Transient(format!("{}: too many workers open gap {}", self.table(), gap.id.0)))
    }

    /// Puts `gap` if the one that stands was opened at `standing`; whether it did.
    async fn replace(&self, gap: &Gap, standing: Option<UnixMillis>) -> Outcome<bool> {
        let mut say = Aliases::default();
        let [open, id] = say.names([OPEN, &gap.id.0]);
        let entry = say.value(encode(gap));
        let condition = match standing {
            None => format!("attribute_exists({open}) AND attribute_not_exists({open}.{id})"),
            Some(then) => format!("{open}.{id}.{}={}", say.name(OPENED), say.number(then)),
        };
        let put = self.update_if(GAPS, say, format!("SET {open}.{id}={entry}"), condition).await?;
        Ok(put.is_some())
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
