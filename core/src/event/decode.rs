//! Decodes a Kafka record into an event, such as a like: reads the JSON once and borrows the ids, then checks the
//! fields in a fixed order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Deed, Event, Field, MAX_AMOUNT, MAX_EVENT_BYTES, Rejection};
use crate::definitions::{Definition, Definitions, Direction, MemberField, SubjectField};
use crate::ids::{BadId, CounterKind, CounterName, check_id};
use crate::ports::log::Record;
use crate::time::UnixMillis;

/// Decodes a record by the definitions in force. In CloudEvents' binary mode the attributes are headers and the value
/// is the event itself, so a header `ce_specversion` has to name a known version. Otherwise the value alone decides.
pub fn decode<'a>(record: Record<'a>, definitions: &Definitions) -> Result<Event<'a>, Rejection> {
    if record.headers().len() > 0
        && let Some(version) = record.header("ce_specversion")
        && !version.starts_with(b"1.")
    {
        return Err(UNKNOWN_VERSION);
    }
    decode_value(record.value, record.at, definitions)
}

/// Decodes a record's value. `recorded` is the record's own time, for an event that states none.
///
/// An object with `specversion` and without ids is a CloudEvents envelope, whose `data` is the event. (CloudEvents
/// attribute names have no underscore, so neither can be mistaken for the other.) Of a field that is given twice the
/// last value counts, as with most JSON parsers. Unknown fields are ignored.
pub fn decode_value<'a>(
    value: Option<&'a [u8]>,
    recorded: UnixMillis,
    definitions: &Definitions,
) -> Result<Event<'a>, Rejection> {
    let value = value.filter(|value| !value.is_empty()).ok_or(Rejection::EmptyValue)?;
    if value.len() > MAX_EVENT_BYTES {
        return Err(Rejection::TooLarge(value.len()));
    }
    let text = std::str::from_utf8(value).map_err(|error| Rejection::NotUtf8(error.valid_up_to()))?;
    let mut fields = Fields::default();
    match parse(text, &mut fields).map_err(|error| Rejection::NotJson(error.to_string()))? {
        Value::Object if fields.is_envelope() => open(&mut fields)?.event(recorded, definitions),
        Value::Object => fields.event(recorded, definitions),
        _ => Err(Rejection::NotAnObject),
    }
}

/// Takes the place of a region that is not even a text.
const NO_REGION: &str = "";

const UNKNOWN_VERSION: Rejection = Rejection::BadEnvelope("specversion is not 1.x");

fn parse<'a>(text: &'a str, fields: &mut Fields<'a>) -> serde_json::Result<Value<'a>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = Reader { fields: Some(fields), is_outermost: true }.deserialize(&mut json)?;
    json.end()?;
    Ok(parsed)
}

/// Returns the event inside a CloudEvents envelope.
fn open<'f, 'a>(envelope: &'f mut Fields<'a>) -> Result<&'f mut Fields<'a>, Rejection> {
    match &envelope.specversion {
        Some(Value::Text(version)) if version.starts_with("1.") => {}
        _ => return Err(UNKNOWN_VERSION),
    }
    match &mut envelope.data {
        None => Err(Rejection::BadEnvelope("there is no data")),
        Some((Value::Object, fields)) => Ok(fields),
        Some(_) => Err(Rejection::BadEnvelope("data is not an object")),
    }
}

/// A JSON value, as far as an event needs it.
enum Value<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Null,
    /// An object. Its needed fields were read into a [`Fields`].
    Object,
    Other,
}

#[derive(Default)]
struct Fields<'a> {
    post_id: Option<Value<'a>>,
    user_id: Option<Value<'a>>,
    action: Option<Value<'a>>,
    ts: Option<Value<'a>>,
    /// Counters other than likes need these.
    hashtag: Option<Value<'a>>,
    reply_id: Option<Value<'a>>,
    event_id: Option<Value<'a>>,
    member: Option<Value<'a>>,
    n: Option<Value<'a>>,
    region: Option<Value<'a>>,
    specversion: Option<Value<'a>>,
    data: Option<(Value<'a>, Box<Fields<'a>>)>,
}

impl<'a> Fields<'a> {
    /// Returns the slot of a field that an event or its envelope may need.
    fn place(&mut self, name: &str) -> Option<&mut Option<Value<'a>>> {
        Some(match name {
            "post_id" => &mut self.post_id,
            "user_id" => &mut self.user_id,
            "action" => &mut self.action,
            "ts" => &mut self.ts,
            "hashtag" => &mut self.hashtag,
            "reply_id" => &mut self.reply_id,
            "event_id" => &mut self.event_id,
            "member" => &mut self.member,
            "n" => &mut self.n,
            "region" => &mut self.region,
            "specversion" => &mut self.specversion,
            _ => return None,
        })
    }

    fn is_envelope(&self) -> bool {
        self.specversion.is_some() && self.post_id.is_none() && self.user_id.is_none()
    }

    /// Returns the event, read by the definition that its action selects. Without an action that is a text it is
    /// checked like a like, so that other faults are named first.
    fn event(&mut self, recorded: UnixMillis, definitions: &Definitions) -> Result<Event<'a>, Rejection> {
        let Some(Value::Text(action)) = self.action.take_if(|action| matches!(action, Value::Text(_))) else {
            let bad = self.action.is_some();
            self.subject(SubjectField::Post)?;
            self.user()?;
            return Err(if bad { Rejection::BadAction(None) } else { Rejection::MissingField(Field::Action) });
        };
        let Some((definition, direction)) = definitions.acted_on(&action) else {
            return Err(Rejection::BadAction(Some(action.into())));
        };
        Ok(Event {
            counter: definition.name.clone(),
            subject: self.subject(definition.subject)?,
            deed: self.deed(definition, direction)?,
            at: match &self.ts {
                None | Some(Value::Null) => recorded,
                Some(Value::Whole(ms)) if *ms <= UnixMillis::MAX.0 => UnixMillis(*ms),
                Some(_) => return Err(Rejection::BadTimestamp),
            },
            region: match self.region.take() {
                None | Some(Value::Null) => None,
                Some(Value::Text(text)) => Some(text),
                Some(_) => Some(Cow::Borrowed(NO_REGION)),
            },
        })
    }

    fn subject(&mut self, field: SubjectField) -> Result<Cow<'a, str>, Rejection> {
        let bad = if field == SubjectField::Post { Rejection::BadPostId } else { Rejection::BadHashtag };
        let value = if field == SubjectField::Post { self.post_id.take() } else { self.hashtag.take() };
        id(value.ok_or(Rejection::MissingField(Field::Subject(field)))?).map_err(bad)
    }

    fn user(&mut self) -> Result<Cow<'a, str>, Rejection> {
        id(self.user_id.take().ok_or(Rejection::MissingField(Field::User))?).map_err(Rejection::BadUserId)
    }

    fn member(&mut self, field: MemberField) -> Result<Cow<'a, str>, Rejection> {
        let bad = |fault| Rejection::BadMember(field, fault);
        let value = self.place(field.as_str()).and_then(Option::take);
        id(value.ok_or(bad(None))?).map_err(bad)
    }

    fn deed(&mut self, definition: &Definition, direction: Direction) -> Result<Deed<'a>, Rejection> {
        let adds = direction == Direction::Add;
        match definition.kind() {
            CounterKind::Set => {
                // For likes the rejections name `user_id`, as dead letters and tools expect.
                let likes = definition.name == CounterName::LIKES;
                let id = if likes { self.user()? } else { self.member(definition.member)? };
                Ok(Deed::Member { id, present: adds })
            }
            CounterKind::Sum => {
                let n = match self.n.take() {
                    None | Some(Value::Null) => 1,
                    Some(Value::Whole(n)) => i64::try_from(n).unwrap_or(i64::MAX),
                    Some(_) => return Err(Rejection::BadAmount),
                };
                let amount = if (1..=MAX_AMOUNT).contains(&n) { n } else { return Err(Rejection::BadAmount) };
                Ok(Deed::Amount(if adds { amount } else { -amount }))
            }
        }
    }
}

/// Returns the id that a value holds, or what is wrong with it: `None` where it is not even a text.
fn id(value: Value<'_>) -> Result<Cow<'_, str>, Option<BadId>> {
    let Value::Text(text) = value else { return Err(None) };
    check_id(&text)?;
    Ok(text)
}

/// Reads one JSON value to its end. The fields of an object go into `fields`: handing them on by value costs more.
struct Reader<'f, 'a> {
    /// Where an object's fields go; `None` where only the value's type matters.
    fields: Option<&'f mut Fields<'a>>,
    /// Only the outermost object can be an envelope.
    is_outermost: bool,
}

impl Reader<'_, '_> {
    /// Returns a reader that drops the fields of an object.
    fn plain() -> Self {
        Self { fields: None, is_outermost: false }
    }
}

impl<'a> DeserializeSeed<'a> for Reader<'_, 'a> {
    type Value = Value<'a>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Value<'a>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a> {
    type Value = Value<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<'a>, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'a>, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value<'a>, E> {
        Ok(Value::Whole(n))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<'a>, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value<'a>, E> {
        Ok(Value::Null)
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Value<'a>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Value<'a>, A::Error> {
        let Some(fields) = self.fields else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Object);
        };
        // Every name is a text.
        while let Some(Value::Text(name)) = map.next_key_seed(Reader::plain())? {
            if let Some(place) = fields.place(&name) {
                *place = Some(map.next_value_seed(Reader::plain())?);
            } else if self.is_outermost && name == "data" {
                let mut inner = Box::default();
                let data = map.next_value_seed(Reader { fields: Some(&mut inner), is_outermost: false })?;
                fields.data = Some((data, inner));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::Entry;
    use crate::ports::log::Records;
    use crate::topic::Offset;

    const RECORDED: UnixMillis = UnixMillis(77);

    fn likes() -> Definitions {
        Definitions::likes_alone()
    }

    fn present(event: &Event<'_>) -> bool {
        matches!(event.deed, Deed::Member { present: true, .. })
    }

    fn reason(value: &str) -> &'static str {
        let Err(rejection) = decode_value(Some(value.as_bytes()), RECORDED, &of_every_kind()) else {
            return "accepted";
        };
        assert!(Rejection::REASONS.contains(&rejection.reason()), "{rejection}");
        rejection.reason()
    }

    #[test]
    fn a_region_is_optional_and_one_that_is_malformed_is_none() {
        let decoded = |region: &str| {
            let value = format!(r#"{{"post_id":"p","user_id":"u","action":"like"{region}}}"#);
            let likes = Definitions::likes_alone();
            let event = decode_value(Some(value.as_bytes()), UnixMillis(0), &likes).unwrap();
            (event.region().map(|region| region.to_string()), event.has_bad_region())
        };
        for none in ["", r#","region":null"#] {
            assert_eq!(decoded(none), (None, false), "{none}");
        }
        assert_eq!(decoded(r#","region":"eu-1""#), (Some("eu-1".to_owned()), false));
        for bad in [r#","region":"EU""#, r#","region":"""#, r#","region":7"#, r#","region":["eu"]"#] {
            assert_eq!(decoded(bad), (None, true), "{bad}");
        }
    }

    #[test]
    fn the_documented_event_is_accepted_and_its_ids_are_borrowed() {
        let value = br#"{"post_id":"p-1","user_id":"u-1","action":"like","ts":1700000000000,"event_id":"optional"}"#;
        let event = decode_value(Some(value), RECORDED, &likes()).unwrap();
        assert_eq!((event.subject(), event.member(), present(&event)), ("p-1", Some("u-1"), true));
        assert_eq!(event.at, UnixMillis(1_700_000_000_000));
        assert!(matches!(
            &event,
            Event { subject: Cow::Borrowed(_), deed: Deed::Member { id: Cow::Borrowed(_), .. }, .. }
        ));
    }

    #[test]
    fn an_event_without_a_time_happened_when_it_was_recorded() {
        for value in [
            r#"{"post_id":"p","user_id":"u","action":"unlike"}"#,
            r#"{"post_id":"p","user_id":"u","action":"unlike","ts":null}"#,
        ] {
            let event = decode_value(Some(value.as_bytes()), RECORDED, &likes()).unwrap();
            assert_eq!((present(&event), event.at), (false, RECORDED));
        }
    }

    /// The corpus `e2e/bad_input` has what may be wrong with likes.
    #[test]
    fn each_way_to_be_wrong_of_other_counters_has_its_reason() {
        assert_eq!(decode_value(Some(b"{\"a\":\"\xff\"}"), RECORDED, &likes()), Err(Rejection::NotUtf8(6)));
        for (value, expected) in [
            (r#"{"post_id":"p","user_id":"u","action":"like","ts":1e400}"#, "not_json"),
            (r#"{"post_id":"p","action":"view","n":0}"#, "bad_amount"),
            (r#"{"post_id":"p","action":"view","n":-1}"#, "bad_amount"),
            (r#"{"post_id":"p","action":"view","n":1.0}"#, "bad_amount"),
            (r#"{"post_id":"p","action":"view","n":1000001}"#, "bad_amount"),
            (r#"{"post_id":"p","action":"view","n":"1"}"#, "bad_amount"),
            (r#"{"action":"view"}"#, "missing_field"),
            (r#"{"post_id":"p","action":"reply"}"#, "bad_member"),
            (r#"{"post_id":"p","action":"reply","reply_id":7}"#, "bad_member"),
            (r#"{"post_id":"p","action":"reply","reply_id":""}"#, "bad_member"),
            (r#"{"post_id":"p","action":"tag"}"#, "missing_field"),
            (r#"{"hashtag":7,"post_id":"p","action":"tag"}"#, "bad_hashtag"),
            (r#"{"hashtag":"h","action":"tag"}"#, "bad_member"),
            (r#"{"action":"see"}"#, "bad_action"),
        ] {
            assert_eq!(reason(value), expected, "{value}");
        }
    }

    #[test]
    fn an_envelope_is_told_by_what_it_lacks_and_binary_mode_by_a_version_in_the_headers() {
        let event = r#"{"post_id":"p","user_id":"u","action":"like"}"#;
        let envelope = format!(r#"{{"id":"1","data":{event},"specversion":"1.1","action":"extension"}}"#);
        assert_eq!(reason(&envelope), "accepted");
        assert_eq!(reason(r#"{"specversion":"9","data":7,"post_id":"p","user_id":"u","action":"like"}"#), "accepted");
        let reason = |value: Option<&str>, version: Option<&'static [u8]>| {
            let (mut records, value) = (Records::default(), value.map(str::as_bytes));
            records.push(Offset(0), RECORDED, None, value, [("ce_specversion", version)]);
            decode(records.get(0).unwrap(), &likes()).map_or_else(|rejection| rejection.reason(), |_| "accepted")
        };
        assert_eq!(reason(None, Some(b"0.3")), "bad_envelope");
        assert_eq!(reason(None, Some(b"1.0")), "empty_value");
        assert_eq!(reason(Some(event), None), "accepted", "a header without a value names no version");
        assert_eq!(reason(Some(&envelope), Some(b"1.0")), "accepted", "an envelope inside binary mode is opened");
    }

    /// Returns a counter for each kind of subject and member, with an action that removes and without.
    fn of_every_kind() -> Definitions {
        let entries: Vec<Entry> = serde_json::from_str(include_str!("../../tests/vectors/counters.json")).unwrap();
        Definitions::new(&entries).unwrap()
    }

    #[test]
    fn the_action_says_which_fields_an_event_needs() {
        let of = |value: &str| {
            let (definitions, value) = (of_every_kind(), value.to_owned().into_bytes());
            let event = decode_value(Some(&value), RECORDED, &definitions).unwrap();
            format!("{} {} {:?}", event.counter, event.subject(), event.deed)
        };
        for (value, expected) in [
            (r#"{"post_id":"p","user_id":"u","action":"like"}"#, r#"likes p Member { id: "u", present: true }"#),
            (r#"{"post_id":"p","action":"unreply","reply_id":"r"}"#, r#"replies p Member { id: "r", present: false }"#),
            (r#"{"hashtag":"h","action":"tag","post_id":"p"}"#, r#"tagged h Member { id: "p", present: true }"#),
            (r#"{"post_id":"p","action":"open","event_id":"e"}"#, r#"opens p Member { id: "e", present: true }"#),
            (r#"{"post_id":"p","action":"unlabel","member":"m"}"#, r#"labels p Member { id: "m", present: false }"#),
            (r#"{"post_id":"p","action":"view"}"#, "views p Amount(1)"),
            (r#"{"post_id":"p","action":"view","n":null}"#, "views p Amount(1)"),
            (r#"{"post_id":"p","action":"view","n":1000000}"#, "views p Amount(1000000)"),
            (r#"{"post_id":"p","action":"unview","n":25}"#, "views p Amount(-25)"),
        ] {
            assert_eq!(of(value), expected, "{value}");
        }
    }
}
