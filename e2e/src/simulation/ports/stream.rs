//! The change stream in a mutant's hands: records kept from the captures, or captures kept by wrong rules beside the
//! service's own, whose reports are written all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tally_core::Map;
use tally_core::counter::contains;
use tally_core::ids::{MemberKey, RowKey, Sequence, StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{
    ChangeStream, Checkpoints, Counts, Iterator, Position, Records, Recounts, StreamFault, StreamInfo,
};
use tally_core::tally::{Record, RecordKind, read};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::window::{Phase, Report, WindowRun};
use tally_service::{Host, Stage};

use super::super::mutant::Mutant;

/// How long a report waits for its token, which the service writes.
const BEHIND: Duration = Duration::from_millis(500);

/// Captures by wrong rules: of one process's place, over all its lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows(Arc<Mutex<BTreeMap<StreamShardId, Shadow>>>);

#[derive(Debug, Default)]
struct Shadow {
    last: Option<Sequence>,
    trimmed: bool,
    open: BTreeMap<RowKey, Window>,
    /// How much each row gained or lost inside the windows that were closed.
    deltas: BTreeMap<WindowRun, Deltas>,
}

/// What rows gained or lost, by their sort keys.
pub(crate) type Deltas = BTreeMap<String, i64>;

#[derive(Debug, Default)]
struct Window {
    /// The run whose opening marker was seen.
    run: Option<WindowRun>,
    touched: Map<MemberKey, Weight>,
    deltas: Deltas,
}

impl Shadows {
    /// How much each row gained or lost inside the window of `run`, if all of it was seen.
    pub(crate) fn deltas(&self, run: &str) -> Option<Deltas> {
        let of_run = |shadow: &Shadow| {
            let mut closed = shadow.deltas.iter();
            closed.find(|(closed, _)| closed.to_string() == run).map(|(_, deltas)| deltas.clone())
        };
        self.of().values().find_map(of_run)
    }

    fn of(&self) -> MutexGuard<'_, BTreeMap<StreamShardId, Shadow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shadow {
    /// Reading goes on at `position`.
    fn resumed(&mut self, position: Position, mutant: Mutant) {
        let continued = matches!(position, Position::After(sequence) if self.last == Some(sequence));
        let over_trim = mutant == Mutant::CaptureOverTrim && std::mem::take(&mut self.trimmed);
        if !continued && !over_trim && mutant != Mutant::CaptureOverResume {
            self.open.clear();
        }
    }

    fn observe(&mut self, record: &Record, mutant: Mutant) -> Option<Report> {
        self.last = self.last.max(Some(record.sequence));
        match &record.kind {
            RecordKind::Row { key, member, after, .. } => {
                // Without a look at the opening marker, every key has a window open.
                let unopened = mutant == Mutant::UnopenedReport;
                if unopened || self.open.contains_key(key) {
                    let window = self.open.entry(key.clone()).or_default();
                    window.touched.insert(member.clone(), *after);
                    *window.deltas.entry(member.as_str().to_owned()).or_default() += record.delta();
                }
                None
            }
            RecordKind::Marker { key, marker } if marker.phase == Phase::Low => {
                if self.open.get(key).is_none_or(|window| window.run != Some(marker.run)) {
                    self.open.insert(key.clone(), Window { run: Some(marker.run), ..Window::default() });
                }
                None
            }
            RecordKind::Marker { key, marker } => {
                let window = self.open.remove(key);
                if mutant == Mutant::DeltasAdded {
                    let window = window.filter(|window| window.run == Some(marker.run));
                    self.deltas.extend(window.map(|window| (marker.run, window.deltas)));
                    return None;
                }
                let unopened = mutant == Mutant::UnopenedReport;
                let window = window.or_else(|| unopened.then(Window::default))?;
                let reports = unopened || window.run == Some(marker.run);
                reports.then(|| Report { key: key.clone(), run: marker.run, touched: window.touched })
            }
            RecordKind::Unreadable { .. } | RecordKind::Reserved | RecordKind::Foreign(_) => None,
        }
    }
}

/// The stream, but for one rule.
pub(crate) struct MutatedStream {
    pub(crate) inner: Arc<dyn ChangeStream>,
    pub(crate) mutant: Mutant,
    pub(crate) shadows: Shadows,
    pub(crate) counts: Arc<dyn Counts>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) recounts: Arc<dyn Recounts>,
    pub(crate) host: Host,
    pub(crate) label: Mutex<Option<StreamLabel>>,
}

impl MutatedStream {
    fn observe(&self, shard: &StreamShardId, records: &Records) {
        let mut shadows = self.shadows.of();
        let shadow = shadows.entry(shard.clone()).or_default();
        for record in records.records.iter().filter_map(read) {
            if Some(record.sequence) <= shadow.last && self.mutant != Mutant::CaptureOverResume {
                continue;
            }
            if let Some(report) = shadow.observe(&record, self.mutant) {
                self.write(report);
            }
        }
    }

    fn write(&self, report: Report) {
        let recounts = Arc::clone(&self.recounts);
        self.host.worker(Stage::Output, "report", move |_| async move {
            tokio::time::sleep(BEHIND).await;
            while recounts.put_report(&report, UnixMillis(0)).await.is_err() {
                tokio::time::sleep(BEHIND).await;
            }
            Ok(())
        });
    }

    /// Leaves out what the counters have already.
    async fn unapplied(&self, shard: &StreamShardId, records: Records) -> Records {
        let label = self.label.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(label) = label else { return records };
        let states = self.checkpoints.shards(&label).await.unwrap_or_default();
        let Some(state) = states.into_iter().find(|state| state.checkpoint.id == *shard) else { return records };
        let mut left = Records { records: Vec::new(), next: records.next };
        for raw in records.records {
            let known = read(&raw).and_then(|record| match record.kind {
                RecordKind::Row { key, .. } => Some((key.counter, record.sequence)),
                _ => None,
            });
            let applied = match known {
                Some((id, sequence)) => self
                    .counts
                    .counter(&id)
                    .await
                    .ok()
                    .flatten()
                    .is_some_and(|counter| contains(&counter, state.checkpoint.ordinal, sequence)),
                None => false,
            };
            if !applied {
                left.records.push(raw);
            }
        }
        left
    }
}

#[async_trait]
impl ChangeStream for MutatedStream {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        let info = self.inner.info().await?;
        *self.label.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.label.clone());
        Ok(info)
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        self.inner.shards(label).await
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        self.inner.children(label, parent).await
    }

    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault> {
        let found = self.inner.iterator(label, shard, position).await;
        let mut shadows = self.shadows.of();
        let shadow = shadows.entry(shard.clone()).or_default();
        match found {
            Ok(Iterator(token)) => {
                shadow.resumed(position, self.mutant);
                if let Position::After(sequence) = position
                    && self.mutant != Mutant::CaptureOverResume
                {
                    shadow.last = Some(sequence);
                }
                Ok(Iterator(format!("{shard}\n{token}")))
            }
            Err(fault) => {
                shadow.trimmed |= fault == StreamFault::Trimmed;
                Err(fault)
            }
        }
    }

    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault> {
        let (shard, token) = iterator.0.split_once('\n').unwrap_or(("", &iterator.0));
        let shard = StreamShardId::from(shard);
        let read = self.inner.records(&Iterator(token.to_owned()), limit).await;
        if read == Err(StreamFault::Trimmed) {
            self.shadows.of().entry(shard.clone()).or_default().trimmed = true;
        }
        let mut records = read?;
        if self.mutant == Mutant::AppliedNotCaptured {
            records = self.unapplied(&shard, records).await;
        } else {
            self.observe(&shard, &records);
        }
        records.next = records.next.map(|Iterator(token)| Iterator(format!("{shard}\n{token}")));
        Ok(records)
    }
}
