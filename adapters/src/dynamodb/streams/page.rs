//! A page of change records in our words: of each record what a decision is made by.

use std::collections::HashMap;

use aws_sdk_dynamodbstreams::types::{AttributeValue, Record};
use tally_core::ids::Region;
use tally_core::tally::{Image, RawRecord};
use tally_core::weight::{Stated, Weight};

use super::super::names::PK;
use super::super::names::likes::{GENERATION, GONE, N, REGION, RUN, TO, USER_ID};
use super::millis;

/// The attributes of an image or a key.
type Attributes = HashMap<String, AttributeValue>;

/// A record as the relay takes it, which decides what it means.
pub(super) fn raw(record: Record) -> RawRecord {
    let Some(change) = record.dynamodb else { return RawRecord::default() };
    let mut keys = change.keys.unwrap_or_default();
    RawRecord {
        sequence: change.sequence_number.unwrap_or_default(),
        written: change.approximate_creation_date_time.as_ref().map(millis).unwrap_or_default(),
        pk: text(&mut keys, PK),
        sort: text(&mut keys, USER_ID),
        before: change.old_image.map(image),
        after: change.new_image.map(image),
    }
}

fn image(mut attributes: Attributes) -> Image {
    let stated = match attributes.get(N) {
        _ if attributes.contains_key(GONE) => Stated::Amount(Weight::ABSENT),
        None => Stated::Nothing,
        Some(AttributeValue::N(digits)) => Stated::number(digits),
        Some(_) => Stated::Unreadable,
    };
    Image {
        stated,
        to: number(&attributes, TO),
        generation: number(&attributes, GENERATION),
        region: text(&mut attributes, REGION).and_then(|region| Region::new(&region)),
        run: text(&mut attributes, RUN),
    }
}

fn text(attributes: &mut Attributes, name: &str) -> Option<String> {
    if let Some(AttributeValue::S(text)) = attributes.remove(name) { Some(text) } else { None }
}

fn number(attributes: &Attributes, name: &str) -> Option<u64> {
    if let Some(AttributeValue::N(digits)) = attributes.get(name) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use tally_core::ports::{ChangeStream as _, Iterator, Records};
    use tally_core::time::UnixMillis;

    use super::super::super::connection::Connection;
    use super::super::super::settings::Settings;
    use super::super::super::told::Told;
    use super::super::Streams;
    use super::*;

    async fn read(page: &'static str) -> Records {
        let told = Told::new(&[(200, page)]);
        let streams = Streams::new(&Connection::in_process(&Settings::local(""), told, UnixMillis(0)));
        streams.records(&Iterator("i".to_owned()), 10).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_what_means_something_of_it() {
        let read = read(
            r#"{"NextShardIterator":"next","Records":[{"eventID":"1","eventName":"MODIFY","awsRegion":"r","dynamodb":{
                "ApproximateCreationDateTime":1700000000.5,"SequenceNumber":"100","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES",
                "Keys":{"user_id":{"S":"u"},"pk":{"S":"p#3"}},
                "OldImage":{"pk":{"S":"p#3"},"post_id":{"S":"p"},"liked_at":{"N":"7"},"new_one":{"L":[{"M":{"a":{"S":"b"}}}]}},
                "NewImage":{"n":{"N":"-5"},"to":{"N":"12"},"gen":{"N":"1"},"region":{"S":"us"},"run":{"S":"x"}}}}]}"#,
        )
        .await;
        let expected = RawRecord {
            sequence: "100".to_owned(),
            written: UnixMillis(1_700_000_000_500),
            pk: Some("p#3".to_owned()),
            sort: Some("u".to_owned()),
            before: Some(Image { stated: Stated::Nothing, ..Image::default() }),
            after: Some(Image {
                run: Some("x".to_owned()),
                stated: Stated::number("-5"),
                to: Some(12),
                generation: Some(1),
                region: Region::new("us"),
            }),
        };
        assert_eq!(read.records, [expected]);
        assert_eq!(read.next, Some(Iterator("next".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tombstone_counts_for_nothing() {
        let read = read(
            r#"{"Records":[{"dynamodb":{"SequenceNumber":"1","OldImage":{"liked_at":{"N":"7"}},"NewImage":{"gone":{"N":"9"}}}}]}"#,
        )
        .await;
        let weighed = [&read.records[0].before, &read.records[0].after].map(|image| image.as_ref().unwrap().stated);
        assert_eq!(weighed, [Stated::Nothing, Stated::Amount(Weight::ABSENT)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_of_another_type_is_not_there_and_a_weight_of_another_type_is_unreadable() {
        let read = read(
            r#"{"Records":[{"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1,"Keys":{"pk":{"N":"1"},"user_id":{"B":"AA=="}},
                "NewImage":{"n":{"S":"5"},"to":{"S":"1"},"region":{"N":"1"},"run":{"BOOL":true}}}}, {"eventName":"REMOVE"}]}"#,
        )
        .await;
        let [record, nothing] = &read.records[..] else { panic!("{read:?}") };
        assert_eq!((&record.pk, &record.sort, &record.before), (&None, &None, &None));
        assert_eq!(record.after, Some(Image { stated: Stated::Unreadable, ..Image::default() }));
        assert_eq!(*nothing, RawRecord::default());
        assert_eq!(read.next, None);
    }
}
