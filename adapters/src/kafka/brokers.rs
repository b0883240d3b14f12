//! A client that has lost its brokers is told of them again.
//!
//! A broker that its controller has fenced for a moment, as after a standstill, names no broker at all in its answers.
//! librdkafka 2.10 and later then forgets every broker, and may ask nobody ever again (its issue 5301, not mended in
//! 2.12.1): the group is never joined again, and every call fails until the process is started again.

#![expect(unsafe_code, reason = "rdkafka has no call that adds brokers to a client")]

use std::ffi::CString;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka_sys as sys;
use tokio::time::Instant;

use super::args::Settings;

/// How long a client is left to find brokers by itself. It remembers each call, so calls are not made more often.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The brokers that a client began with.
pub(super) struct Brokers {
    list: CString,
    named: Mutex<Option<Instant>>,
}

impl Brokers {
    pub(super) fn of(settings: &Settings) -> Self {
        let list = settings.option("bootstrap.servers").unwrap_or_default();
        Self { list: CString::new(list).unwrap_or_default(), named: Mutex::default() }
    }

    /// Whether the client is told now.
    fn is_due(&self) -> bool {
        let mut named = self.named.lock();
        let due = named.is_none_or(|named| named.elapsed() >= PATIENCE);
        if due {
            *named = Some(Instant::now());
        }
        due
    }

    /// Tells a client that cannot reach a broker of those that it began with. One that knows them is left as it is.
    pub(super) fn name_again<C: ClientContext>(&self, client: &Client<C>) {
        if self.is_due() {
            // SAFETY: the pointer is of a client that the caller borrows, and may be used by any thread; the list is a C string
            // that the client copies.
            let known = unsafe { sys::rd_kafka_brokers_add(client.native_ptr(), self.list.as_ptr()) };
            tracing::debug!(known, "the client is told of its brokers again");
        }
    }
}
