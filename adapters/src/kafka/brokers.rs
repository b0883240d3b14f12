//! Names its brokers again to a client that has lost them.
//!
//! A broker that its controller has fenced for a moment, as after a standstill, names no broker at all in its answers.
//! librdkafka 2.10 and later then forgets every broker, and may never ask one again (its issue 5301, not fixed in
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

/// How long a client may look for brokers by itself. It remembers each call, so calls are not made more often.
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

    /// Returns whether to name the brokers now.
    fn is_due(&self) -> bool {
        let mut named = self.named.lock();
        let due = named.is_none_or(|named| named.elapsed() >= PATIENCE);
        if due {
            *named = Some(Instant::now());
        }
        due
    }

    /// Names the brokers that it began with to a client that cannot reach any. A client that knows them stays as it is.
    pub(super) fn name_again<C: ClientContext>(&self, client: &Client<C>) {
        if self.is_due() {
            // SAFETY: the pointer is of a client that the caller borrows, and may be used by any thread; the list is a C string
            // that the client copies.
            let known = unsafe { sys::rd_kafka_brokers_add(client.native_ptr(), self.list.as_ptr()) };
            tracing::debug!(known, "the client is told of its brokers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::{BaseConsumer, Consumer as _};

    use super::super::Embedded;
    use super::super::context::Context;
    use super::*;

    #[test]
    fn a_client_that_knows_no_broker_that_answers_finds_those_that_it_is_told_of() {
        let cluster = Embedded::start(&[("likes", 1)]).unwrap();
        let context = Context::new(&Settings::plaintext(cluster.bootstrap()));
        let client: BaseConsumer<Context> =
            Settings::plaintext("127.0.0.1:1").client.create_with_context(context).unwrap();
        let asked = |within| client.fetch_metadata(Some("likes"), Duration::from_secs(within));
        assert!(asked(1).is_err(), "nothing listens there");
        client.context().brokers.name_again(client.client());
        assert_eq!(asked(20).unwrap().topics()[0].partitions().len(), 1);
        assert!(!client.context().brokers.is_due(), "it was told a moment ago");
    }
}
