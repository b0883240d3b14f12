//! Writes an event, such as a like, as the JSON that the decoder reads: for the API and the tools that send events. The
//! definition of the event's counter says which fields and which action it has.

use serde::ser::{SerializeMap as _, Serializer as _};

use crate::definitions::{Definition, Direction};
use crate::ids::{Region, UserId};
use crate::time::UnixMillis;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A member of a set.
    Member(&'a UserId),
    /// An amount of a sum.
    Amount(u32),
}

/// Returns the value of a record with this event, or `None` where the definition has no action for the direction.
/// `region` is where the event comes from.
pub fn encode(
    definition: &Definition,
    subject: &str,
    direction: Direction,
    said: Said<'_>,
    region: Option<&Region>,
    at: UnixMillis,
) -> Option<Vec<u8>> {
    let action = definition.action(direction)?;
    let mut value = Vec::with_capacity(96);
    let mut json = serde_json::Serializer::new(&mut value);
    let written: Result<(), serde_json::Error> = (|| {
        let mut map = json.serialize_map(None)?;
        map.serialize_entry(definition.subject.as_str(), subject)?;
        if let Said::Member(member) = said {
            map.serialize_entry(definition.member.as_str(), member.as_str())?;
        }
        map.serialize_entry("action", action)?;
        if let Said::Amount(n) = said {
            map.serialize_entry("n", &n)?;
        }
        if let Some(region) = region {
            map.serialize_entry("region", region.as_str())?;
        }
        map.serialize_entry("ts", &at)?;
        map.end()
    })();
    written.expect("strings and integers always serialise");
    Some(value)
}
