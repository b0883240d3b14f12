//! Reads records of the stream of the table `likes`: a row was put, changed or deleted, a recount put a marker, or the
//! record has another shape.
//!
//! The relay reads records with these functions, and the recount weighs rows by the same rules, so that both agree on
//! what a row is.

use thiserror::Error;

use crate::changes::{Effect, Side};
use crate::ids::{BadRowKey, MemberKey, Region, ReservedKey, RowKey, Sequence};
use crate::register::Version;
use crate::time::UnixMillis;
use crate::weight::Stated;

/// A record of the stream, with the attributes that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawRecord {
    /// Its position, as DynamoDB writes it.
    pub sequence: String,
    /// When it was written, to the second.
    pub written: UnixMillis,
    /// `pk`, where it is a text.
    pub pk: Option<String>,
    /// `user_id`, where it is a text.
    pub sort: Option<String>,
    /// The item before the change; `None` where there was none.
    pub before: Option<Image>,
    /// The item after the change; `None` where there is none.
    pub after: Option<Image>,
    /// DynamoDB deleted the item because it had expired.
    pub expired: bool,
}

/// An item before or after a change, with the attributes that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// `run`, of a marker.
    pub run: Option<String>,
    /// `n`, of a row.
    pub stated: Stated,
    /// `v` of a member, `to` of a cell or a canary (a row that shows how late the stream is); `None` where it is
    /// unreadable.
    pub v: Option<u64>,
    /// `region`, of a member that has a valid one.
    pub region: Option<Region>,
}

/// A record of a known shape, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub sequence: Sequence,
    /// When it was written, to the second.
    pub written: UnixMillis,
    pub kind: RecordKind,
}

/// What a change record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A row that counts was put, changed or deleted, or a recount put its marker beside the rows of a key.
    Row(RowKey, Effect),
    /// The change of an item with another reserved sort key, which counts nothing.
    Reserved,
    /// A record of another shape. The relay reports and skips it.
    Foreign(Quarantine),
}

/// Why a record has no known shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Quarantine {
    #[error("its key is not a row key and a user id")]
    NoKey,
    /// `pk` is no row key.
    #[error("{0}")]
    BadRowKey(BadRowKey),
    /// `user_id` is no id.
    #[error("its user id is not valid")]
    BadUser,
    /// It has neither image, so the stream is not set up for counting.
    #[error("it has neither an old nor a new image")]
    NoImages,
    /// It is a marker of a form that this version does not know.
    #[error("its recount marker is not readable")]
    BadMarker,
}

impl Quarantine {
    /// Returns the reason as a metric label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoKey => "no_key",
            Self::BadRowKey(_) => "bad_row_key",
            Self::BadUser => "bad_user",
            Self::NoImages => "no_images",
            Self::BadMarker => "bad_marker",
        }
    }
}

impl Record {
    /// Returns the weight gained or lost, computed from both images and not from the event's name.
    pub fn delta(&self) -> i64 {
        match &self.kind {
            RecordKind::Row(_, effect) => effect.gain(),
            _ => 0,
        }
    }
}

/// Reads a record. Returns `None` where its position is unreadable, since nothing behind it could be ordered.
pub fn read(raw: &RawRecord) -> Option<Record> {
    let sequence = raw.sequence.parse().ok()?;
    Some(Record { sequence, written: raw.written, kind: kind(raw).unwrap_or_else(RecordKind::Foreign) })
}

fn kind(raw: &RawRecord) -> Result<RecordKind, Quarantine> {
    let (Some(pk), Some(sort)) = (&raw.pk, &raw.sort) else { return Err(Quarantine::NoKey) };
    let key: RowKey = pk.parse().map_err(Quarantine::BadRowKey)?;
    if raw.before.is_none() && raw.after.is_none() {
        return Err(Quarantine::NoImages);
    }
    match ReservedKey::read(sort) {
        Some(ReservedKey::Recount) => return marker(key, raw.after.as_ref()),
        Some(reserved) if !reserved.is_counted() => return Ok(RecordKind::Reserved),
        Some(_) | None => {}
    }
    let member = MemberKey::new(sort).ok_or(Quarantine::BadUser)?;
    let side = |image: &Option<Image>| match image {
        None => Some(Side::default()),
        Some(image) => image.side(member.is_cell()),
    };
    let effect = match (side(&raw.before), side(&raw.after)) {
        // Only tombstones may expire.
        (Some(before), Some(after)) if !raw.expired || before.weight == after.weight => {
            Effect::Weighed { member, before, after }
        }
        _ => Effect::Unreadable { member },
    };
    Ok(RecordKind::Row(key, effect))
}

impl Image {
    /// Returns what a row counts for; `None` where its weight is unreadable. A cell has no region.
    fn side(&self, is_cell: bool) -> Option<Side> {
        let weight = self.stated.weight(is_cell)?.get();
        let region = self.region.clone().filter(|_| !is_cell);
        Some(Side { weight, region, v: self.v.map(Version::from_stored) })
    }
}

fn marker(key: RowKey, image: Option<&Image>) -> Result<RecordKind, Quarantine> {
    let Some(image) = image else { return Ok(RecordKind::Reserved) };
    let nonce = image.run.as_ref().and_then(|run| run.parse().ok());
    nonce.map(|nonce| RecordKind::Row(key, Effect::Marked(nonce))).ok_or(Quarantine::BadMarker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::Weight;

    const MARKER: &str = "\u{1}recount";

    fn raw(pk: &str, sort: &str, before: bool, after: bool) -> RawRecord {
        RawRecord {
            sequence: "100000000000000000001".into(),
            pk: Some(pk.into()),
            sort: Some(sort.into()),
            before: before.then(Image::default),
            after: after.then(Image::default),
            ..RawRecord::default()
        }
    }

    fn kind_of(raw: &RawRecord) -> RecordKind {
        read(raw).unwrap().kind
    }

    fn weighing(sort: &str, before: Stated, after: Stated) -> RawRecord {
        let image = |stated| Some(Image { stated, ..Image::default() });
        RawRecord { before: image(before), after: image(after), ..raw("p#+views.0", sort, true, true) }
    }

    fn unreadable(sort: &str) -> RecordKind {
        let member = MemberKey::new(sort).unwrap();
        RecordKind::Row("p#+views.0".parse().unwrap(), Effect::Unreadable { member })
    }

    #[test]
    fn a_cell_changes_its_counter_by_the_difference_of_its_amounts() {
        let amount = |n: &str| Stated::number(n);
        let cell = "\u{1}cell/views/3";
        assert_eq!(read(&weighing(cell, amount("7"), amount("-5"))).unwrap().delta(), -12);
        let created = RawRecord { before: None, ..weighing(cell, Stated::Nothing, amount("7")) };
        assert_eq!(read(&created).unwrap().delta(), 7);
    }

    #[test]
    fn a_row_whose_weight_is_unreadable_before_or_after_changes_its_counter_by_nothing_that_is_known() {
        let one = Stated::number("1");
        for (sort, before, after) in [
            ("u", Stated::Unreadable, one),
            ("u", one, Stated::Unreadable),
            ("\u{1}cell/views/3", one, Stated::Nothing),
        ] {
            assert_eq!(kind_of(&weighing(sort, before, after)), unreadable(sort), "{sort:?}");
        }
    }

    #[test]
    fn a_tombstone_that_expires_changes_nothing_and_a_live_row_that_does_makes_its_counter_unknown() {
        let expired = |stated| RawRecord { after: None, expired: true, ..weighing("u", stated, stated) };
        let tombstone = read(&expired(Stated::Amount(Weight::ABSENT))).unwrap();
        assert_eq!(tombstone.delta(), 0);
        assert!(matches!(tombstone.kind, RecordKind::Row(_, Effect::Weighed { .. })));
        assert_eq!(kind_of(&expired(Stated::Nothing)), unreadable("u"));
    }

    #[test]
    fn a_reserved_key_is_never_a_like() {
        for sort in [MARKER, "\u{1}something else"] {
            assert_eq!(read(&raw("p#1", sort, false, true)).unwrap().delta(), 0, "{sort:?}");
        }
        assert_eq!(kind_of(&raw("p#1", "\u{1}something else", false, true)), RecordKind::Reserved);
    }

    #[test]
    fn what_is_none_of_our_rows_is_quarantined_with_its_reason() {
        let reason = |raw: &RawRecord| match kind_of(raw) {
            RecordKind::Foreign(quarantine) => quarantine.reason(),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&RawRecord { pk: None, ..raw("", "u", false, true) }), "no_key");
        assert_eq!(reason(&raw("order-7", "u", false, true)), "bad_row_key");
        assert_eq!(reason(&raw("p#1", "", false, true)), "bad_user");
        assert_eq!(reason(&raw("p#1", "u", false, false)), "no_images");
        assert_eq!(reason(&raw("p#1", MARKER, false, true)), "bad_marker");
    }

    #[test]
    fn a_record_without_a_readable_position_is_not_read_at_all() {
        assert_eq!(read(&RawRecord { sequence: "x".into(), ..raw("p#1", "u", false, true) }), None);
    }
}
