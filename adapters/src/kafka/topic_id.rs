//! Reads the id of a topic, which tells it from a later one of the same name; the reader of the topic's logs asks for it.
//! The `DescribeTopics` request is made by hand, since the safe bindings do not offer it.

#![expect(unsafe_code, reason = "rdkafka has no DescribeTopics; every pointer is owned by a guard of this file")]

use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka_sys as sys;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::topic::TopicId;

use super::convert::fault_of;

/// Returns the id that the broker has for `topic`, or the topic's name where the broker knows no ids. Blocks up to
/// `timeout`.
pub(super) fn read<C: ClientContext>(client: &Client<C>, topic: &str, timeout: Duration) -> Outcome<TopicId> {
    let name = CString::new(topic).map_err(|_| Fault::Fatal(format!("`{topic}` cannot be a topic's name")))?;
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // Any broker can answer. Without a choice librdkafka would wait for a controller, which not every cluster names.
    let doing = format!("describing `{topic}`");
    let metadata = client.fetch_metadata(Some(topic), timeout).map_err(|error| fault_of(&doing, &error))?;
    let broker = metadata.brokers().first().map_or(-1, rdkafka::metadata::MetadataBroker::id);
    let described = describe(client.native_ptr(), &name, broker, millis, &doing)?;
    Ok(TopicId(described.unwrap_or_else(|| topic.to_owned()).into()))
}

/// A pointer that is released by `free` when it goes out of scope.
struct Guard<T> {
    pointer: *mut T,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the constructor that `free` belongs to, and only this guard releases it.
        unsafe { (self.free)(self.pointer) }
    }
}

fn describe(
    client: *mut sys::rd_kafka_t,
    name: &CStr,
    broker: i32,
    millis: i32,
    doing: &str,
) -> Outcome<Option<String>> {
    let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let mut names = [name.as_ptr()];
    // SAFETY: `client` outlives this call, since the caller borrows the client it belongs to; `names` holds one valid C
    // string, which the collection copies; the options and the queue belong to this client and are released after use.
    let event = unsafe {
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = Guard { pointer: topics, free: sys::rd_kafka_TopicCollection_destroy };
        let options = sys::rd_kafka_AdminOptions_new(client, operation);
        let options = Guard { pointer: options, free: sys::rd_kafka_AdminOptions_destroy };
        sys::rd_kafka_AdminOptions_set_request_timeout(options.pointer, millis, ptr::null_mut(), 0);
        sys::rd_kafka_AdminOptions_set_broker(options.pointer, broker, ptr::null_mut(), 0);
        let queue = Guard { pointer: sys::rd_kafka_queue_new(client), free: sys::rd_kafka_queue_destroy };
        sys::rd_kafka_DescribeTopics(client, topics.pointer, options.pointer, queue.pointer);
        // A little longer than the request itself may take, so that its own time-out is reported.
        let event = sys::rd_kafka_queue_poll(queue.pointer, millis.saturating_add(1000));
        if event.is_null() {
            return Err(Fault::Transient(format!("{doing}: no answer in time")));
        }
        Guard { pointer: event, free: sys::rd_kafka_event_destroy }
    };
    id_in(&event, doing)
}

fn id_in(event: &Guard<sys::rd_kafka_event_t>, doing: &str) -> Outcome<Option<String>> {
    // SAFETY: the event is alive, and everything read here is owned by it and copied before it is released.
    unsafe {
        let code = sys::rd_kafka_event_error(event.pointer);
        if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return refused(code, doing);
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event.pointer);
        if result.is_null() {
            return Ok(None);
        }
        let mut count = 0;
        let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count == 0 {
            return Ok(None);
        }
        let topic = *topics;
        // Without an error the pointer is null, and librdkafka has the code of no error for it.
        let code = sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic));
        if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return refused(code, doing);
        }
        Ok(text_of(sys::rd_kafka_TopicDescription_topic_id(topic)))
    }
}

/// Converts an error of the request. A broker too old for it knows no ids; everything else may pass.
fn refused(code: sys::rd_kafka_resp_err_t, doing: &str) -> Outcome<Option<String>> {
    use sys::rd_kafka_resp_err_t as error;
    match code {
        error::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE | error::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION => Ok(None),
        other => {
            let code = rdkafka::types::RDKafkaErrorCode::from(other);
            Err(fault_of(doing, &rdkafka::error::KafkaError::MetadataFetch(code)))
        }
    }
}

/// Returns the id as Kafka's own tools print it; `None` where there is none or it is all zeros.
///
/// # Safety
/// `id` is null or points to a living id.
unsafe fn text_of(id: *const sys::rd_kafka_Uuid_t) -> Option<String> {
    // SAFETY: checked for null; the text belongs to the id and is copied.
    unsafe {
        if id.is_null() {
            return None;
        }
        let bits = (sys::rd_kafka_Uuid_most_significant_bits(id), sys::rd_kafka_Uuid_least_significant_bits(id));
        if bits == (0, 0) {
            return None;
        }
        let text = sys::rd_kafka_Uuid_base64str(id);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}
