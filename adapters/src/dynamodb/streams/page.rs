//! Reads a page of change records from the service's answer straight into [`RawRecord`]s, which have only what the
//! relay needs. The SDK's own reader builds a map of every attribute of every item, which took a third of a
//! change-streamer's time. The SDK still signs, sends, tries again and reads errors.

use std::borrow::Cow;
use std::sync::Arc;

use aws_sdk_dynamodbstreams::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodbstreams::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodbstreams::operation::get_records::GetRecordsOutput;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{Error, Output};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, OrchestratorError};
use aws_smithy_runtime_api::client::ser_de::{DeserializeResponse, SharedResponseDeserializer};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use tally_core::ids::Region;
use tally_core::ports::{Iterator, Records};
use tally_core::tally::{Image, RawRecord};
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};

/// The principal that deletes expired items.
const EXPIRY: &str = "dynamodb.amazonaws.com";

/// Reads the answer to one call of `GetRecords`, and keeps its page.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadPage(Arc<Mutex<Option<Records>>>);

impl ReadPage {
    /// Returns the page, once the call has succeeded.
    pub(super) fn page(&self) -> Records {
        self.0.lock().take().unwrap_or_default()
    }
}

impl Intercept for ReadPage {
    fn name(&self) -> &'static str {
        "ReadPage"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        attempt: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if context.response().status().is_success() {
            attempt.interceptor_state().store_put(SharedResponseDeserializer::new(self.clone()));
        }
        Ok(())
    }
}

impl DeserializeResponse for ReadPage {
    fn deserialize_nonstreaming_with_config(
        &self,
        response: &HttpResponse,
        _: &ConfigBag,
    ) -> Result<Output, OrchestratorError<Error>> {
        // The attempt before broke off within its page, so this reader reads the refusal of the next one, too. The
        // caller asks for the page again, and then the SDK reads what a refusal says.
        if !response.status().is_success() {
            return Err(OrchestratorError::other("a refusal behind a page that broke off"));
        }
        let page: Page =
            serde_json::from_slice(response.body().bytes().unwrap_or_default()).map_err(OrchestratorError::other)?;
        *self.0.lock() = Some(page.into());
        Ok(Output::erase(GetRecordsOutput::builder().build()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    records: Option<Vec<Raw>>,
    next_shard_iterator: Option<String>,
}

/// A record that is converted as soon as it is read: a thousand of them as the service writes them would be a megabyte.
struct Raw(RawRecord);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(raw(Record::deserialize(deserializer)?)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    #[serde(borrow)]
    dynamodb: Option<Change<'a>>,
    #[serde(borrow)]
    user_identity: Option<Identity<'a>>,
}

/// Who deleted the item, if the service did.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Identity<'a> {
    #[serde(borrow)]
    principal_id: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change<'a> {
    sequence_number: Option<String>,
    approximate_creation_date_time: Option<f64>,
    #[serde(borrow)]
    keys: Option<Item<'a>>,
    #[serde(borrow)]
    old_image: Option<Item<'a>>,
    #[serde(borrow)]
    new_image: Option<Item<'a>>,
}

/// The attributes of a key or an image that the relay uses.
#[derive(Default, Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    pk: Option<Attribute<'a>>,
    #[serde(borrow)]
    user_id: Option<Attribute<'a>>,
    #[serde(borrow)]
    n: Option<Attribute<'a>>,
    #[serde(borrow)]
    v: Option<Attribute<'a>>,
    #[serde(borrow)]
    to: Option<Attribute<'a>>,
    #[serde(borrow)]
    region: Option<Attribute<'a>>,
    #[serde(borrow)]
    run: Option<Attribute<'a>>,
    gone: Option<serde::de::IgnoredAny>,
}

/// An attribute that may be a text or a number. One of another type is read as neither.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Attribute<'a> {
    #[serde(borrow)]
    s: Option<Text<'a>>,
    #[serde(borrow)]
    n: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl From<Page> for Records {
    fn from(page: Page) -> Self {
        let records = page.records.unwrap_or_default().into_iter().map(|Raw(record)| record).collect();
        Self { records, next: page.next_shard_iterator.map(Iterator) }
    }
}

/// Converts a record for the relay, which decides what it means.
fn raw(record: Record<'_>) -> RawRecord {
    let Some(change) = record.dynamodb else { return RawRecord::default() };
    let keys = change.keys.unwrap_or_default();
    RawRecord {
        sequence: change.sequence_number.unwrap_or_default(),
        written: change.approximate_creation_date_time.map(millis).unwrap_or_default(),
        pk: text(keys.pk),
        sort: text(keys.user_id),
        before: change.old_image.map(image),
        after: change.new_image.map(image),
        expired: record.user_identity.and_then(|by| by.principal_id).is_some_and(|by| by.0 == EXPIRY),
    }
}

fn image(item: Item<'_>) -> Image {
    let stated = match item.n {
        _ if item.gone.is_some() => Stated::Amount(Weight::ABSENT),
        None => Stated::Nothing,
        Some(Attribute { n: Some(digits), .. }) => Stated::number(&digits.0),
        Some(_) => Stated::Unreadable,
    };
    Image {
        stated,
        v: number(item.v.as_ref().or(item.to.as_ref())),
        region: item.region.and_then(|region| Region::new(&region.s?.0)),
        run: text(item.run),
    }
}

fn text(attribute: Option<Attribute<'_>>) -> Option<String> {
    Some(attribute?.s?.0.into_owned())
}

fn number(attribute: Option<&Attribute<'_>>) -> Option<u64> {
    attribute?.n.as_ref()?.0.parse().ok()
}

/// Converts seconds to a time. The service states whole ones.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number out of range becomes the nearest in it"
)]
fn millis(seconds: f64) -> UnixMillis {
    UnixMillis((seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::body::SdkBody;
    use tally_core::fault::Fault;
    use tally_core::ports::{ChangeStream as _, StreamFault};

    use super::super::super::connection::Connection;
    use super::super::super::connection::Settings;
    use super::super::super::connection::told::Told;
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
                "OldImage":{"pk":{"S":"p#3"},"post_id":{"S":"p"},"liked_at":{"N":"7"},"v":{"N":"12"},"new_one":{"L":[{"M":{"a":{"S":"b"}}}]}},
                "NewImage":{"n":{"N":"-5"},"to":{"N":"844424930131980"},"region":{"S":"us"},"run":{"S":"x"}}}}]}"#,
        )
        .await;
        let expected = RawRecord {
            sequence: "100".to_owned(),
            written: UnixMillis(1_700_000_000_500),
            pk: Some("p#3".to_owned()),
            sort: Some("u".to_owned()),
            expired: false,
            before: Some(Image { stated: Stated::Nothing, v: Some(12), ..Image::default() }),
            after: Some(Image {
                run: Some("x".to_owned()),
                stated: Stated::number("-5"),
                v: Some(844_424_930_131_980),
                region: Region::new("us"),
            }),
        };
        assert_eq!(read.records, [expected]);
        assert_eq!(read.next, Some(Iterator("next".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn who_deleted_an_item_says_whether_it_had_expired() {
        let read = read(
            r#"{"Records":[
                {"dynamodb":{"SequenceNumber":"1"},"userIdentity":{"PrincipalId":"dynamodb.amazonaws.com","Type":"Service"}},
                {"dynamodb":{"SequenceNumber":"2"},"userIdentity":{"PrincipalId":"another","Type":"Service"}},
                {"dynamodb":{"SequenceNumber":"3"},"userIdentity":null}]}"#,
        )
        .await;
        assert_eq!(read.records.iter().map(|record| record.expired).collect::<Vec<_>>(), [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_of_another_type_is_not_there_and_a_weight_of_another_type_is_unreadable() {
        let read = read(
            r#"{"Records":[{"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1,"Keys":{"pk":{"N":"1"},"user_id":{"B":"AA=="}},
                "NewImage":{"n":{"S":"5"},"v":{"S":"1"},"region":{"N":"1"},"run":{"BOOL":true}}}}, {"eventName":"REMOVE"}]}"#,
        )
        .await;
        let [record, nothing] = &read.records[..] else { panic!("{read:?}") };
        assert_eq!((&record.pk, &record.sort, &record.before), (&None, &None, &None));
        assert_eq!(record.after, Some(Image { stated: Stated::Unreadable, ..Image::default() }));
        assert_eq!(*nothing, RawRecord::default());
        assert_eq!(read.next, None);
    }

    #[test]
    fn a_refusal_behind_a_page_that_broke_off_is_no_page_and_least_of_all_the_last_one_of_its_shard() {
        let refusal = || SdkBody::from(r#"{"__type":"InternalServerError","message":"later"}"#);
        for (status, is_read) in [(200, true), (400, false), (500, false)] {
            let reader = ReadPage::default();
            let response = HttpResponse::new(status.try_into().unwrap(), refusal());
            let read = reader.deserialize_nonstreaming_with_config(&response, &ConfigBag::base());
            assert_eq!((read.is_ok(), reader.0.lock().is_some()), (is_read, is_read), "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_cannot_be_read_may_be_asked_for_again_and_a_refusal_is_read_as_before() {
        let expired =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ExpiredIteratorException","message":"it expired"}"#;
        let told = Told::new(&[(200, r#"{"Records":7}"#), (400, expired), (200, r#"{"NextShardIterator":"on"}"#)]);
        let streams = Streams::new(&Connection::in_process(&Settings::local(""), told.clone(), UnixMillis(0)));
        let iterator = Iterator("i".to_owned());
        let unreadable = streams.records(&iterator, 10).await.unwrap_err();
        assert!(
            matches!(&unreadable, StreamFault::Fault(Fault::Transient(why)) if why.contains("invalid type")),
            "{unreadable:?}"
        );
        assert_eq!(streams.records(&iterator, 10).await, Err(StreamFault::Expired));
        let next = Some(Iterator("on".to_owned()));
        assert_eq!(streams.records(&iterator, 10).await, Ok(Records { records: Vec::new(), next }));
    }
}
