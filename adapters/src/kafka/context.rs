//! What librdkafka calls back: on rebalances, to log, and for a token to log in with. Rebalances go on to the task that
//! polls the client.

use std::error::Error;
use std::ffi::CString;
use std::time::Duration;

use aws_sdk_dynamodb::config::Region;
use parking_lot::Mutex;
use rdkafka::client::{Client, OAuthToken};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};
use rdkafka_sys as sys;
use tally_service::Seldom;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::args::Settings;

/// A rebalance, as librdkafka reports it.
#[derive(Debug)]
pub(super) enum Change {
    /// These partitions are assigned to this member.
    Assigned(Vec<i32>),
    /// The group wants these back. They stay assigned until they are unassigned.
    Revoked(Vec<i32>),
    /// The group took these from this member without asking.
    Lost(Vec<i32>),
}

/// The callbacks of a client. They report little, since what matters arrives as an event, too.
pub(super) struct Context {
    pub(super) brokers: Brokers,
    iam: Option<Iam>,
    changes: Option<UnboundedSender<Change>>,
    /// The explanation of the last error.
    reason: Mutex<String>,
}

impl Context {
    /// The callbacks of a client that is in no group.
    pub(super) fn new(settings: &Settings) -> Self {
        let iam = settings.msk_region.as_deref().map(Iam::new);
        Self { brokers: Brokers::of(settings), iam, changes: None, reason: Mutex::default() }
    }

    /// Makes them those of a member of a group, whose rebalances go to `changes`.
    pub(super) fn reporting(mut self, changes: UnboundedSender<Change>) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Takes the explanation of the error that the last poll returned: the error's code names no broker and no offset.
    pub(super) fn take_reason(&self) -> String {
        std::mem::take(&mut *self.reason.lock())
    }

    /// Returns whether the client has what it needs to log in. It asks for a token when its events are polled.
    pub(super) fn can_log_in(&self) -> bool {
        self.iam.as_ref().is_none_or(Iam::has_token)
    }

    fn report(&self, change: Change) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.send(change).is_ok())
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", ?level, facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
        reason.clone_into(&mut self.reason.lock());
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.iam.as_ref().ok_or("this client does not log in by IAM")?.token()
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let answered = if kind == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.report(Change::Assigned(partitions));
            consumer.incremental_assign(&TopicPartitionList::new())
        } else if consumer.assignment_lost() {
            self.report(Change::Lost(partitions));
            unassign_held(consumer, list)
        } else if self.report(Change::Revoked(partitions)) {
            Ok(())
        } else {
            // The member is leaving, and does not answer any more.
            unassign_held(consumer, list)
        };
        if let Err(error) = answered {
            tracing::warn!(%error, "cannot answer a rebalance");
        }
    }
}

/// Unassigns those of `list` that are assigned. A partition is assigned once it is started, and unassigning any other
/// one would fail the whole call.
pub(super) fn unassign_held(consumer: &impl Consumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    let mut held = TopicPartitionList::new();
    for element in consumer.assignment()?.elements() {
        if list.find_partition(element.topic(), element.partition()).is_some() {
            held.add_partition(element.topic(), element.partition());
        }
    }
    consumer.incremental_unassign(&held)
}

/// How long a token is fresh. It lives for fifteen minutes, and librdkafka asks for the next after four fifths of that.
const FRESH: Duration = Duration::from_secs(13 * 60);

/// Signs login tokens for MSK with the AWS credentials of the environment.
struct Iam {
    region: Region,
    runtime: Option<Handle>,
    signed: Mutex<Option<Instant>>,
}

impl Iam {
    /// A signer that runs on the current runtime.
    fn new(region: &str) -> Self {
        Self { region: Region::new(region.to_owned()), runtime: Handle::try_current().ok(), signed: Mutex::new(None) }
    }

    /// Returns whether a token was signed lately enough to log in with.
    fn has_token(&self) -> bool {
        let signed = *self.signed.lock();
        signed.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Signs a token. Blocks: librdkafka asks for it wherever its events are polled, which may be a worker of the
    /// runtime, so the signer runs on a thread of its own.
    fn token(&self) -> Result<OAuthToken, Box<dyn Error>> {
        let runtime = self.runtime.clone().ok_or("no runtime to sign a token on")?;
        let region = self.region.clone();
        let signing = std::thread::spawn(move || {
            runtime.block_on(aws_msk_iam_sasl_signer::generate_auth_token(region)).map_err(|error| error.to_string())
        });
        let (token, lifetime_ms) = signing.join().map_err(|_| "the signer panicked")??;
        *self.signed.lock() = Some(Instant::now());
        Ok(OAuthToken { token, principal_name: "tally".to_owned(), lifetime_ms })
    }
}

/// How long a client may look for brokers by itself. It remembers each call, so calls are not made more often.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The brokers that a client began with, to be named again to a client that has lost them.
///
/// A broker that its controller has fenced for a moment, as after a standstill, names no broker at all in its answers.
/// librdkafka 2.10 and later then forgets every broker, and may never ask one again (its issue 5301, not fixed in
/// 2.12.1): the group is never joined again, and every call fails until the process is started again.
pub(super) struct Brokers {
    list: CString,
    named: Seldom,
}

impl Brokers {
    pub(super) fn of(settings: &Settings) -> Self {
        let list = settings.option("bootstrap.servers").unwrap_or_default();
        Self { list: CString::new(list).unwrap_or_default(), named: Seldom::default() }
    }

    /// Names the brokers that it began with to a client that cannot reach any. A client that knows them stays as it is.
    #[expect(unsafe_code, reason = "rdkafka has no call that adds brokers to a client")]
    pub(super) fn name_again<C: ClientContext>(&self, client: &Client<C>) {
        if self.named.is_due(PATIENCE) {
            // SAFETY: the pointer is of a client that the caller borrows, and may be used by any thread; the list is a C string
            // that the client copies.
            let known = unsafe { sys::rd_kafka_brokers_add(client.native_ptr(), self.list.as_ptr()) };
            tracing::debug!(known, "the client is told of its brokers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Embedded;
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
        assert!(!client.context().brokers.named.is_due(PATIENCE), "it was told a moment ago");
    }
}
