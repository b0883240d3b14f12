//! A loss is something of the log, the stream or a table that is gone unread, or may be wrong. It is open until an
//! audit has repaired the counters.
//!
//! One item has all losses, so that one read returns them. A closed loss stays for a while, so that a process that
//! finds it late, or once more, does not open it again.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::LossNumber;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::checkpoints::key;
use super::super::item::{Attribute, Item, Reader, item, text};
use super::super::table::Conditional;
use super::Changes;

const ALL: &str = "changes/losses";
/// How long a closed loss is kept. Readers of the log remember a loss for a day, and no number is as old as a week.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a process tries to open a loss while others open theirs.
const ATTEMPTS: u32 = 8;

/// A loss as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What kind of loss it is, one word.
    pub kind: String,
    /// What is lost, in words for people.
    pub what: String,
    /// When it was closed; `None` while it is open.
    pub closed: Option<UnixMillis>,
}

/// The losses that are stored, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub BTreeMap<LossNumber, Loss>);

impl Losses {
    /// The losses that are open.
    pub fn open(&self) -> impl Iterator<Item = (LossNumber, &Loss)> {
        self.0.iter().filter(|(_, loss)| loss.closed.is_none()).map(|(number, loss)| (*number, loss))
    }

    /// Returns the number for a loss that is found now: at least the current time, and greater than all stored ones.
    pub fn next(&self, now: UnixMillis) -> LossNumber {
        let behind = self.0.last_key_value().map_or(0, |(LossNumber(last), _)| last.saturating_add(1));
        LossNumber(now.0.max(behind))
    }

    fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        let stored: BTreeMap<String, Loss> = reader.get("losses")?;
        let losses = stored.into_iter().map(|(number, loss)| {
            let n = number.parse().map_err(|error| reader.malformed("losses", format!("{number}: {error}")))?;
            Ok((LossNumber(n), loss))
        });
        losses.collect::<Outcome<_>>().map(Self)
    }
}

impl Attribute for Loss {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        let loss = value.as_m().map_err(|_| "not a map".to_owned())?;
        let text = |name| loss.get(name).map(String::read).ok_or_else(|| format!("{name} is missing"))?;
        let closed = loss.get("closed").map(UnixMillis::read).transpose()?;
        Ok(Self { kind: text("kind")?, what: text("what")?, closed })
    }
}

impl Changes {
    /// Returns the losses, open and closed.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn losses(&self) -> Outcome<Losses> {
        Ok(self.table().find(key(ALL), Losses::decode).await?.unwrap_or_default())
    }

    /// Opens the loss of this number, unless it is stored already. Returns the stored one. Safe to repeat: a stored
    /// loss stays as it is, also if it is closed.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn open_loss(&self, number: LossNumber, kind: &str, what: &str) -> Outcome<Loss> {
        let opened = Loss { kind: kind.to_owned(), what: what.to_owned(), closed: None };
        for _ in 0..ATTEMPTS {
            let loss = AttributeValue::M(item! { "kind": text(kind), "what": text(what) });
            let update = format!("SET #losses.#{number}=:loss");
            let condition = format!("attribute_exists(#losses) AND attribute_not_exists(#losses.#{number})");
            match self.table().update_if(key(ALL), &update, &condition, [(":loss", loss)]).await? {
                Conditional::Done(_) => return Ok(opened),
                Conditional::Refused(Some(found)) => {
                    if let Some(stands) = Losses::decode(&self.table().reader(&found))?.0.remove(&number) {
                        return Ok(stands);
                    }
                }
                // The map has to be there before an entry can be set in it.
                Conditional::Refused(None) => {
                    let none = item! { "id": text(ALL), "losses": AttributeValue::M(Item::new()) };
                    self.table().put_new(none, "id", |_| Ok(())).await?;
                }
            }
        }
        Err(Fault::Transient(format!("{}: loss {number} is neither there nor opened", self.table().name)))
    }

    /// Opens a loss that was found now, under the next number, and returns the number. A repetition may open a second
    /// loss, which does no harm.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn open_new_loss(&self, now: UnixMillis, kind: &str, what: &str) -> Outcome<LossNumber> {
        self.open_next(now, kind, what, |_| false).await.map(|(number, _)| number)
    }

    /// Opens a loss unless one of the same kind and text is stored, open or closed. Returns whether it opened one.
    /// Processes that find the loss at the same time round it up to the same second, and so use the same number; where
    /// they do not, one more loss does no harm.
    pub(in crate::dynamodb) async fn open_loss_once(&self, now: UnixMillis, kind: &str, what: &str) -> Outcome<bool> {
        let second = UnixMillis(now.0.div_ceil(1000) * 1000);
        let is_same = |loss: &Loss| loss.kind == kind && loss.what == what;
        self.open_next(second, kind, what, is_same).await.map(|(_, is_new)| is_new)
    }

    /// Returns the number of a stored loss that is `known`, or opens a loss and returns its number; and whether it
    /// opened it.
    async fn open_next(
        &self,
        now: UnixMillis,
        kind: &str,
        what: &str,
        known: impl Fn(&Loss) -> bool + Send,
    ) -> Outcome<(LossNumber, bool)> {
        let ours = Loss { kind: kind.to_owned(), what: what.to_owned(), closed: None };
        for _ in 0..ATTEMPTS {
            let losses = self.losses().await?;
            if let Some((number, _)) = losses.0.iter().find(|(_, loss)| known(loss)) {
                return Ok((*number, false));
            }
            let number = losses.next(now);
            if self.open_loss(number, kind, what).await? == ours {
                return Ok((number, true));
            }
        }
        Err(Fault::Transient(format!("{}: too many processes number their losses", self.table().name)))
    }

    /// Closes a loss that is repaired, and drops those that were closed long ago. Safe to repeat: the first time of
    /// closing stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn close_loss(&self, number: LossNumber, at: UnixMillis) -> Outcome<()> {
        let stands = self.losses().await?;
        let closed = format!("#losses.#{number}.#closed");
        let mut update = format!("SET {closed}=if_not_exists({closed},:at)");
        let is_old = |loss: &Loss| loss.closed.is_some_and(|closed| at.since(closed) > KEPT);
        let old = stands.0.iter().filter(|(other, loss)| **other != number && is_old(loss));
        let old: Vec<String> = old.map(|(old, _)| format!("#losses.#{old}")).collect();
        if !old.is_empty() {
            update += &format!(" REMOVE {}", old.join(","));
        }
        let (condition, at) = (format!("attribute_exists(#losses.#{number})"), super::super::item::number(at));
        self.table().update_if(key(ALL), &update, &condition, [(":at", at)]).await.map(|_| ())
    }
}
