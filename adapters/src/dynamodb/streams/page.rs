//! A page of change records, read straight into our words: what no decision is made by is passed over unread.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use tally_core::ids::Region;
use tally_core::ports::{Iterator, Records};
use tally_core::tally::{Image, RawRecord};
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};

use super::super::names::PK;
use super::super::names::likes::{GENERATION, GONE, N, PHASE, REGION, RUN, TO, USER_ID};

/// What is asked for.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetRecords<'a> {
    pub(super) shard_iterator: &'a str,
    pub(super) limit: u32,
}

/// The answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Page {
    #[serde(default)]
    records: Vec<Record>,
    next_shard_iterator: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Record {
    dynamodb: Option<Change>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    sequence_number: Option<String>,
    /// In seconds.
    approximate_creation_date_time: Option<f64>,
    keys: Option<Attributes>,
    old_image: Option<Attributes>,
    new_image: Option<Attributes>,
}

/// The attributes that mean something to us, of an image or a key.
#[derive(Debug, Default)]
struct Attributes {
    pk: Option<String>,
    sort: Option<String>,
    stated: Option<Stated>,
    /// It is a tombstone.
    gone: bool,
    to: Option<u64>,
    generation: Option<u64>,
    region: Option<String>,
    run: Option<String>,
    phase: Option<String>,
}

impl Page {
    pub(super) fn records(self) -> Records {
        let records = self.records.into_iter().map(raw).collect();
        Records { records, next: self.next_shard_iterator.map(Iterator) }
    }
}

/// A record as the fold takes it, which decides what it means.
fn raw(record: Record) -> RawRecord {
    let Some(change) = record.dynamodb else { return RawRecord::default() };
    let Attributes { pk, sort, .. } = change.keys.unwrap_or_default();
    RawRecord {
        sequence: change.sequence_number.unwrap_or_default(),
        written: UnixMillis(change.approximate_creation_date_time.map_or(0, millis)),
        pk,
        sort,
        before: change.old_image.map(image),
        after: change.new_image.map(image),
    }
}

fn image(attributes: Attributes) -> Image {
    let Attributes { stated, gone, to, generation, region, run, phase, .. } = attributes;
    let region = region.and_then(|region| Region::new(&region));
    let stated = if gone { Stated::Amount(Weight::ABSENT) } else { stated.unwrap_or(Stated::Nothing) };
    Image { run, phase, stated, to, generation, region }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` takes the nearest that fits")]
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

/// A value, as far as one of ours is like it.
#[derive(Debug)]
enum Value {
    Text(String),
    Number(String),
    Other,
}

impl Value {
    fn text(self) -> Option<String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn number(self) -> Option<u64> {
        if let Self::Number(digits) = self { digits.parse().ok() } else { None }
    }

    fn stated(&self) -> Stated {
        if let Self::Number(digits) = self { Stated::number(digits) } else { Stated::Unreadable }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = Value;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value with its type")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut value = Value::Other;
                while let Some(kind) = entries.next_key::<Name>()? {
                    match kind {
                        Name::S => value = Value::Text(entries.next_value()?),
                        Name::N => value = Value::Number(entries.next_value()?),
                        Name::Other => drop(entries.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(value)
            }
        }

        /// A type's name.
        #[derive(Deserialize)]
        enum Name {
            S,
            N,
            #[serde(other)]
            Other,
        }

        deserializer.deserialize_map(Typed)
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> Visitor<'de> for Named {
            type Value = Attributes;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("attributes by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Attributes, A::Error> {
                let mut found = Attributes::default();
                while let Some(Name(name)) = entries.next_key()? {
                    let Some(name) = name else {
                        entries.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let value: Value = entries.next_value()?;
                    match name {
                        N => found.stated = Some(value.stated()),
                        GONE => found.gone = true,
                        TO => found.to = value.number(),
                        GENERATION => found.generation = value.number(),
                        PK => found.pk = value.text(),
                        USER_ID => found.sort = value.text(),
                        REGION => found.region = value.text(),
                        RUN => found.run = value.text(),
                        _ => found.phase = value.text(),
                    }
                }
                Ok(found)
            }
        }

        /// One of the names that mean something.
        struct Name(Option<&'static str>);

        impl<'de> Deserialize<'de> for Name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct OneOf;

                impl Visitor<'_> for OneOf {
                    type Value = Name;

                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str("a name")
                    }

                    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                        const NAMES: [&str; 9] = [N, GONE, TO, GENERATION, PK, USER_ID, REGION, RUN, PHASE];
                        Ok(Name(NAMES.into_iter().find(|known| *known == name)))
                    }
                }

                deserializer.deserialize_str(OneOf)
            }
        }

        deserializer.deserialize_map(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> Records {
        serde_json::from_str::<Page>(page).unwrap().records()
    }

    #[test]
    fn a_record_is_what_means_something_of_it() {
        let read = read(
            r#"{"NextShardIterator":"next","Records":[{"eventID":"1","eventName":"MODIFY","awsRegion":"r","dynamodb":{
                "ApproximateCreationDateTime":1700000000.5,"SequenceNumber":"100","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES",
                "Keys":{"user_id":{"S":"u"},"pk":{"S":"p#3"}},
                "OldImage":{"pk":{"S":"p#3"},"post_id":{"S":"p"},"liked_at":{"N":"7"},"new_one":{"L":[{"M":{"a":{"S":"b"}}}]}},
                "NewImage":{"n":{"N":"-5"},"to":{"N":"12"},"gen":{"N":"1"},"region":{"S":"us"},"run":{"S":"x"},"phase":{"S":"L"}}}}]}"#,
        );
        let expected = RawRecord {
            sequence: "100".to_owned(),
            written: UnixMillis(1_700_000_000_500),
            pk: Some("p#3".to_owned()),
            sort: Some("u".to_owned()),
            before: Some(Image { stated: Stated::Nothing, ..Image::default() }),
            after: Some(Image {
                run: Some("x".to_owned()),
                phase: Some("L".to_owned()),
                stated: Stated::number("-5"),
                to: Some(12),
                generation: Some(1),
                region: Region::new("us"),
            }),
        };
        assert_eq!(read.records, [expected]);
        assert_eq!(read.next, Some(Iterator("next".to_owned())));
    }

    #[test]
    fn a_tombstone_counts_for_nothing() {
        let read = read(
            r#"{"Records":[{"dynamodb":{"SequenceNumber":"1","OldImage":{"liked_at":{"N":"7"}},"NewImage":{"gone":{"N":"9"}}}}]}"#,
        );
        let weighed = [&read.records[0].before, &read.records[0].after].map(|image| image.as_ref().unwrap().stated);
        assert_eq!(weighed, [Stated::Nothing, Stated::Amount(Weight::ABSENT)]);
    }

    #[test]
    fn what_is_of_another_type_is_not_there_and_a_weight_of_another_type_is_unreadable() {
        let read = read(
            r#"{"Records":[{"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1,"Keys":{"pk":{"N":"1"},"user_id":{"B":"AA=="}},
                "NewImage":{"n":{"S":"5"},"to":{"S":"1"},"region":{"N":"1"},"run":{"BOOL":true}}}}, {"eventName":"REMOVE"}]}"#,
        );
        let [record, nothing] = &read.records[..] else { panic!("{read:?}") };
        assert_eq!((&record.pk, &record.sort, &record.before), (&None, &None, &None));
        assert_eq!(record.after, Some(Image { stated: Stated::Unreadable, ..Image::default() }));
        assert_eq!(*nothing, RawRecord::default());
        assert_eq!(read.next, None);
    }
}
