//! Reads one stream shard in order to its end, from where it is *fed*, that is, in the log already. Hands every page to
//! the writer of the log, claims up to when everything was read, and opens a loss where records are gone.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::StoredShard;
use tally_core::changes::{Body, Entry, LossNumber, Lost};
use tally_core::fault::Fault;
use tally_core::ids::{Sequence, StreamLabel, StreamShard, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{Iterator, Position, Records, StreamFault};
use tally_core::relay::{Canary, Fed, Input};
use tally_core::tally::read;
use tally_core::time::UnixMillis;
use tally_service::{Stop, Task, Until};

use super::Reading;
use super::lateness::in_order;
use super::tip::{Pace, Shown, Tip};
use crate::metrics;

/// The most records one read may answer with: what the service allows.
const LIMIT: u32 = 1000;

/// How long a stream shard may go unread before some of its records may be gone. The service keeps them for 24 h.
const OUTAGE: Duration = Duration::from_secs(23 * 3600);

/// How long a reader looks for the children of a stream shard that has ended, and how often.
const CHILDREN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// The reader of one stream shard.
pub(crate) struct Reader {
    of: Reading,
    label: StreamLabel,
    id: StreamShardId,
    shard: StreamShard,
    pace: Pace,
    /// Each reader of this process has a clone, so their number is known.
    readers: Arc<()>,
    tip: Tip,
    age: metrics::Age,
    /// Everything that was written before this time was handed in.
    claimed: UnixMillis,
    /// The last record that was handed in.
    last: Option<Sequence>,
    /// When the service last answered. Unread records can have been trimmed unseen only if that was a day ago.
    contact: UnixMillis,
    /// A loss that was announced, and whose end the next record will show.
    lost: Option<LossNumber>,
}

/// How a reader goes on after a page.
enum Next {
    At(Iterator),
    /// It has to take a new iterator.
    Anew,
    /// There is nothing more to read.
    Ended(Ended),
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Closed,
    /// The service has no such stream shard any more.
    Gone,
}

impl Reader {
    pub(super) fn new(of: Reading, age: metrics::Age, readers: Arc<()>, shard: StreamShard) -> Self {
        let (pace, tip) = (Pace::new(of.rules.poll_idle), Tip::new(of.rules.poll_idle));
        Self {
            of,
            label: StreamLabel::from(shard.label()),
            id: shard.id(),
            shard,
            pace,
            readers,
            tip,
            age,
            claimed: UnixMillis(0),
            last: None,
            contact: UnixMillis(0),
            lost: None,
        }
    }

    /// Reads the stream shard to its end; begins again where it is fed if the writer has dropped what was handed in.
    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let mut restarts = self.of.writing.restarts.clone();
        loop {
            restarts.borrow_and_update();
            let what = format!("read how far stream shard {} is fed", self.id);
            let stored = || self.of.store.shard(&self.shard);
            let stored = self.of.patience.persist(&what, Until::Requested(stop), stored).await?;
            // It may have been closed since it was leased.
            let Some(StoredShard { fed, closed: None, .. }) = stored else { return Ok(()) };
            self.of.writing.hand(Input::Begin(self.shard.clone(), fed)).await?;
            (self.last, self.contact, self.claimed, self.lost) = (fed.to, fed.at, fed.at, None);
            self.tip.moved();
            tokio::select! {
                ended = self.read(stop) => return self.end(ended?, stop).await,
                changed = restarts.changed() => changed?,
            }
        }
    }

    async fn read(&mut self, stop: &Stop) -> anyhow::Result<Ended> {
        let mut next = Next::Anew;
        loop {
            next = match next {
                Next::Anew => self.open(stop).await?,
                Next::At(iterator) => self.page(iterator, stop).await?,
                Next::Ended(ended) => return Ok(ended),
            }
        }
    }

    /// Takes an iterator behind the last record that was handed in; behind a loss, at the oldest record.
    async fn open(&mut self, stop: &Stop) -> anyhow::Result<Next> {
        let now = self.of.patience.clock().now();
        // Also while the end of an earlier loss is not known yet: an audit may have closed that loss by now.
        if now.since(self.contact) > OUTAGE {
            self.lose("outage", stop).await?;
        }
        self.contact = now;
        self.tip.moved();
        let mut tries = 0;
        loop {
            let at = self.last.filter(|_| self.lost.is_none()).map_or(Position::Oldest, Position::After);
            let asked = self.of.stream.iterator(&self.label, &self.id, at);
            match stop.unless_requested(asked).await? {
                Ok(iterator) => return Ok(Next::At(iterator)),
                Err(StreamFault::Trimmed) if at != Position::Oldest => self.lose("trimmed", stop).await?,
                Err(StreamFault::Gone) => return self.gone(stop).await,
                Err(other) => self.pause(other, &mut tries, stop).await?,
            }
        }
    }

    /// Waits as the pace says, then reads a page and hands it in.
    async fn page(&mut self, iterator: Iterator, stop: &Stop) -> anyhow::Result<Next> {
        stop.unless_requested(self.of.patience.clock().sleep(self.pace.wait())).await?;
        let mut tries = 0;
        loop {
            let asked = self.of.patience.clock().now();
            match stop.unless_requested(self.of.stream.records(&iterator, LIMIT)).await? {
                Ok(records) => {
                    self.contact = asked;
                    return self.take(records, asked, stop).await;
                }
                Err(StreamFault::Expired) => {
                    metrics::READS.counter(&["expired"]).increment(1);
                    return Ok(Next::Anew);
                }
                Err(StreamFault::Trimmed) => {
                    self.lose("trimmed", stop).await?;
                    return Ok(Next::Anew);
                }
                Err(StreamFault::Gone) => return self.gone(stop).await,
                Err(other) => self.pause(other, &mut tries, stop).await?,
            }
        }
    }

    /// Hands a page in, and claims up to when everything was read. Returns how to go on.
    async fn take(&mut self, page: Records, asked: UnixMillis, stop: &Stop) -> anyhow::Result<Next> {
        self.of.lateness.asked(asked);
        // A canary, which a relay writes itself, is no sign of more rows to come.
        let rows = page.records.iter().filter(|record| Canary::read(record).is_none()).count();
        self.pace.page(rows, LIMIT as usize, Arc::strong_count(&self.readers));
        metrics::READS.counter(&[if page.records.is_empty() { "empty" } else { "records" }]).increment(1);
        let newest = page.records.iter().map(|record| record.written).max();
        let shown = match newest {
            None => Shown::Nothing,
            Some(_) if page.records.len() * 2 >= LIMIT as usize => Shown::Many,
            Some(newest) => Shown::Few { newest },
        };
        let at_tip = self.tip.page(shown, asked);
        if let Shown::Few { newest } = shown
            && self.tip.is_reached()
        {
            self.of.lateness.was(newest, asked);
        }
        let mut entries = Vec::with_capacity(page.records.len());
        let mut to = self.last;
        for raw in &page.records {
            match Canary::read(raw) {
                Some(canary) => self.of.lateness.saw_canary(canary, asked),
                None => self.of.lateness.saw_row(raw.written),
            }
            let Some(record) = read(raw) else {
                self.hand(std::mem::take(&mut entries), to, asked).await?;
                tracing::error!(shard = %self.id, "a record has no readable position");
                self.lose("unreadable", stop).await?;
                self.lost = None;
                continue;
            };
            if let Some(number) = self.lost.take() {
                let next = Some((self.shard.clone(), record.sequence));
                self.of.writing.announce(Body::Lost(Lost { number, next })).await?;
            }
            // The service may repeat records of an earlier answer.
            if Some(record.sequence) > to {
                to = Some(record.sequence);
                metrics::record_read(&record);
                entries.extend(Entry::of(&record));
            }
        }
        self.hand(entries, to, asked).await?;
        match page.next {
            Some(next) => {
                let at_tip = at_tip.map(|asked| self.of.lateness.claim(asked));
                if let Some(claim) = at_tip.max(newest.map(in_order)) {
                    self.claimed = self.claimed.max(claim);
                    self.of.writing.hand(Input::UpTo(self.shard.clone(), claim)).await?;
                }
                self.age.set(asked.since(self.claimed));
                Ok(Next::At(next))
            }
            // When the shard ended is not known: nothing is claimed of the time before this read.
            None => Ok(Next::Ended(Ended::Closed)),
        }
    }

    async fn hand(&mut self, entries: Vec<Entry>, to: Option<Sequence>, read: UnixMillis) -> anyhow::Result<()> {
        if let Some(last) = to.filter(|_| to > self.last) {
            self.last = to;
            let page = Input::Page { shard: self.shard.clone(), entries, to: last, read };
            self.of.writing.hand(page).await?;
        }
        Ok(())
    }

    /// Opens a loss: stores it, and announces it in every partition before anything behind it is handed in. The next
    /// record that is read shows where the lost piece ends.
    async fn lose(&mut self, kind: &'static str, stop: &Stop) -> anyhow::Result<()> {
        metrics::READS.counter(&["lost"]).increment(1);
        let number = self.of.lose(kind, &self.shard.to_string(), stop).await?;
        self.lost = Some(number);
        Ok(())
    }

    async fn gone(&mut self, stop: &Stop) -> anyhow::Result<Next> {
        metrics::READS.counter(&["gone"]).increment(1);
        tracing::warn!(shard = %self.id, "the stream shard is gone");
        self.lose("vanished", stop).await?;
        Ok(Next::Ended(Ended::Gone))
    }

    /// Closes the stream shard once it was handed in, or is lost, and begins those that continue it. Safe to
    /// repeat: a stream shard that is begun or closed stays so.
    async fn end(&mut self, ended: Ended, stop: &Stop) -> anyhow::Result<()> {
        let children = self.children(stop).await?;
        if children.is_empty() {
            tracing::warn!(shard = %self.id, ?ended, "no stream shard continues this one");
            let info = stop.unless_requested(self.of.stream.info()).await?;
            if ended == Ended::Closed && info.is_ok_and(|info| info.label == self.label) {
                // The stream goes on, so something continues this one, whose changes are not known to be in the log.
                self.lose("childless", stop).await?;
            }
        }
        let named = children.iter().map(|child| StreamShard::new(&self.label, &child.id)).collect();
        let fed = self.of.writing.close(self.shard.clone(), named).await?;
        // A child that was not begun is found by the next process that reads this stream shard to its end.
        for child in &children {
            let shard = StreamShard::new(&self.label, &child.id);
            let from = Fed { to: None, at: fed.at };
            let begin = || self.of.store.begin(&shard, Some(&self.shard), from);
            self.of.patience.persist("begin a stream shard", Until::LastCall(stop), begin).await?;
        }
        let closed = self.of.patience.clock().now();
        let close = || self.of.store.close(&self.shard, closed);
        self.of.patience.persist("close a stream shard", Until::LastCall(stop), close).await
    }

    /// Returns the stream shards that continue this one. They may be listed a while after it has ended.
    async fn children(&self, stop: &Stop) -> anyhow::Result<Vec<Listed>> {
        let (clock, stream) = (self.of.patience.clock(), &self.of.stream);
        let until = clock.reading().at + CHILDREN;
        let mut tries = 0;
        loop {
            let asked = async {
                match stream.children(&self.label, &self.id).await? {
                    Some(children) => Ok(children),
                    None => {
                        let mut listed = stream.shards(&self.label).await?;
                        listed.retain(|shard| shard.parent.as_ref() == Some(&self.id));
                        Ok(listed)
                    }
                }
            };
            match stop.unless_requested(asked).await? {
                Ok(children) if !children.is_empty() => return Ok(children),
                Ok(_) | Err(StreamFault::Gone | StreamFault::Off(_)) if clock.reading().at >= until => {
                    return Ok(Vec::new());
                }
                Ok(_) | Err(StreamFault::Gone | StreamFault::Off(_)) => {
                    stop.unless_requested(clock.sleep(LOOK)).await?;
                }
                Err(other) => self.pause(other, &mut tries, stop).await?,
            }
        }
    }

    async fn pause(&self, fault: StreamFault, tries: &mut u32, stop: &Stop) -> anyhow::Result<()> {
        let fault = Fault::from(fault);
        metrics::READS.counter(&[fault.class()]).increment(1);
        self.age.set(self.of.patience.clock().now().since(self.claimed));
        let what = format!("read stream shard {}", self.id);
        self.of.patience.pause(&what, fault, tries, Until::Requested(stop)).await
    }
}

impl Task for Reader {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let followed = self.follow(&stop).await;
        if stop.is_requested() {
            // Waits until what was handed in is written and stored, if there is time for it.
            let left = self.of.writing.leave(self.shard.clone());
            _ = stop.until_last_call(left).await;
        }
        stop.finish(std::future::ready(followed)).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tally_adapters::dynamodb::{Streams, changes::Changes};
    use tally_core::ports::ChangeStream;
    use tally_emulator::Config;
    use tally_service::{Chance, Clock, Patience, Switch};
    use tally_testkit::{BEGAN, Store};
    use tokio::sync::{mpsc, watch};

    use super::super::writer::{Ask, Writing};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_page_claims_is_handed_in_behind_its_entries() {
        let store = Store::with(Config { shards: 1, ..Config::default() }).await;
        let stream = Arc::new(Streams::new(&store.connection));
        let label = stream.info().await.unwrap().label;
        let id = stream.shards(&label).await.unwrap().remove(0).id;
        let clock = Clock::starting_at(BEGAN);
        for user in ["u", "w"] {
            let item = json!({"pk": {"S": "p#0"}, "user_id": {"S": user}, "post_id": {"S": "p"}});
            store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        let ((asks, mut asked), (_restart, restarts)) = (mpsc::channel(9), watch::channel(0));
        let of = Reading {
            stream,
            store: Arc::new(Changes::new(&store.connection)),
            rules: crate::args::Rules::default(),
            patience: Patience::new(clock, Chance::seeded(1)),
            writing: Writing { asks, restarts },
            lateness: super::super::Lateness::default(),
        };
        let age = metrics::Age::of(metrics::STREAM_AGE, &metrics::Slots::default());
        let mut reader = Reader::new(of, age, Arc::new(()), StreamShard::new(&label, &id));
        reader.contact = clock.now();
        let stop = Switch::new().stop();
        let read = async {
            let Next::At(iterator) = reader.open(&stop).await.unwrap() else { panic!("the stream shard is there") };
            reader.page(iterator, &stop).await.unwrap()
        };
        let next = tokio::time::timeout(Duration::from_secs(60), read).await.expect("no input waits");
        assert!(matches!(next, Next::At(_)));
        let (page, claim) = (asked.try_recv().unwrap(), asked.try_recv().unwrap());
        assert!(matches!(&page, Ask::Hand(Input::Page { entries, .. }) if entries.len() == 2), "{page:?}, {claim:?}");
        // The claim is later than the first entry.
        assert!(matches!(claim, Ask::Hand(Input::UpTo(_, at)) if at > BEGAN), "{claim:?}");
    }
}
