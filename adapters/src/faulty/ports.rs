//! Every port, call by call behind the plan.

use async_trait::async_trait;
use tally_core::audit::{AuditRun, RunRecord, Summary};
use tally_core::batch::Change;
use tally_core::counter::{Counter, Update};
use tally_core::definitions::Definitions;
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Fence, Fences, Partition, Reached};
use tally_core::format::Format;
use tally_core::ids::{
    CounterId, MemberKey, Ordinal, RowKey, Sequence, ShardCount, StreamLabel, StreamShardId, UserId,
};
use tally_core::lineage::{Listed, Loss};
use tally_core::milestone::Ladder;
use tally_core::ports::{
    Applied, AuditSegment, AuditSegments, Cache, Cached, ChangeStream, Claimed, Claims, Counts, Cursor,
    DeploymentConfig, FencedRows, FillToken, Gap, Gaps, Iterator, Judged, Lease, LeaseTaken, Leases, LedgerEntry, Like,
    MarkerPut, Markers, Mended, Outcome, Page, Position, Positions, QueueReason, Queued, Records, RecountQueue,
    Registry, Reports, Rows, Runs, ScannedRow, Segment, ShardState, Standing, StreamFault, StreamInfo, StreamRegistry,
    Worker,
};
use tally_core::served::Served;
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::window::{Marker, Report, Verdict, WindowRun};

use super::Faulty;

/// For the calls whose answer itself says that the outcome is not known.
fn unanswered<T>(answer: Outcome<T>, unknown: T) -> Outcome<T> {
    match answer {
        Err(Fault::Transient(_)) => Ok(unknown),
        answer => answer,
    }
}

#[async_trait]
impl<P: FencedRows> FencedRows for Faulty<P> {
    async fn fence(&self, partition: &Partition) -> Outcome<Option<Fence>> {
        self.call("fence", self.port.fence(partition)).await
    }

    async fn lanes(&self, partition: &Partition) -> Outcome<Option<Fences>> {
        self.call("lanes", self.port.lanes(partition)).await
    }

    async fn first_seen(&self, topic: &str, partitions: u32) -> Outcome<u32> {
        self.call("first_seen", self.port.first_seen(topic, partitions)).await
    }

    async fn create_fence(&self, partition: &Partition, fence: &Fence) -> Outcome<()> {
        self.call("create_fence", self.port.create_fence(partition, fence)).await
    }

    async fn cells(&self, partition: &Partition, counters: &[CounterId]) -> Outcome<Vec<Option<Reached>>> {
        self.call("cells", self.port.cells(partition, counters)).await
    }

    async fn commit(&self, partition: &Partition, advance: &Advance, changes: &[Change<'_>]) -> Commit {
        self.call("commit", self.port.commit(partition, advance, changes)).await
    }

    async fn fences(&self, topic: &str) -> Outcome<Vec<(Partition, Fence)>> {
        self.call("fences", self.port.fences(topic)).await
    }

    async fn replace_fences(&self, partition: &Partition, seen: &Fences, to: &Fences) -> Outcome<bool> {
        self.call("replace_fences", self.port.replace_fences(partition, seen, to)).await
    }
}

#[async_trait]
impl<P: Rows> Rows for Faulty<P> {
    async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>> {
        self.call("like", self.port.like(key, user)).await
    }

    async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
        self.call("present", self.port.present(keys, member)).await
    }

    async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>> {
        self.call("likes", self.port.likes(key, after, limit)).await
    }

    async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<UserId>> {
        self.call("users", self.port.users(key, after)).await
    }

    async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>> {
        self.call("weights", self.port.weights(key, after)).await
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>> {
        self.call("scan", self.port.scan(segment, after)).await
    }
}

#[async_trait]
impl<P: Markers> Markers for Faulty<P> {
    async fn marker(&self, key: &RowKey) -> Outcome<Option<Marker>> {
        self.call("marker", self.port.marker(key)).await
    }

    async fn put_marker(&self, key: &RowKey, marker: Marker, required: Option<Marker>) -> Outcome<MarkerPut> {
        let put = self.call("put_marker", self.port.put_marker(key, marker, required)).await;
        unanswered(put, MarkerPut::Unclear)
    }
}

#[async_trait]
impl<P: Counts> Counts for Faulty<P> {
    async fn apply(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        self.call("apply", self.port.apply(id, update)).await
    }

    async fn counter(&self, id: &CounterId) -> Outcome<Option<Counter>> {
        self.call("counter", self.port.counter(id)).await
    }

    async fn counters(&self, ids: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        self.call("counters", self.port.counters(ids)).await
    }

    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        let judged = self.call("judge", self.port.judge(verdict, entry)).await;
        unanswered(judged, Judged::Void)
    }

    async fn mend_total(&self, id: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        self.call("mend_total", self.port.mend_total(id, version, sum, entry)).await
    }

    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()> {
        self.call("suspect", self.port.suspect(key, now)).await
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        self.call("scan", self.port.scan(segment, after)).await
    }
}

#[async_trait]
impl<P: StreamRegistry> StreamRegistry for Faulty<P> {
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>> {
        self.call("registry", self.port.registry(label)).await
    }

    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal> {
        self.call("number", self.port.number(label, shard, parent, at)).await
    }

    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()> {
        self.call("raise_floor", self.port.raise_floor(label, floor)).await
    }
}

#[async_trait]
impl<P: Positions> Positions for Faulty<P> {
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>> {
        self.call("shards", self.port.shards(label)).await
    }

    async fn advance(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        sequence: Sequence,
        at: UnixMillis,
    ) -> Outcome<()> {
        self.call("advance", self.port.advance(label, shard, sequence, at)).await
    }

    async fn refresh(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.call("refresh", self.port.refresh(label, shard, at)).await
    }

    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.call("close", self.port.close(label, shard, at)).await
    }

    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()> {
        self.call("forget", self.port.forget(label, shard)).await
    }
}

#[async_trait]
impl<P: Leases> Leases for Faulty<P> {
    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        holder: &Worker,
        seen: Option<&Lease>,
    ) -> Outcome<LeaseTaken> {
        self.call("lease", self.port.lease(label, shard, holder, seen)).await
    }

    async fn release(&self, label: &StreamLabel, shard: &StreamShardId, holder: &Worker) -> Outcome<()> {
        self.call("release", self.port.release(label, shard, holder)).await
    }
}

#[async_trait]
impl<P: Gaps> Gaps for Faulty<P> {
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap> {
        self.call("open_gap", self.port.open_gap(loss, now)).await
    }

    async fn standing(&self) -> Outcome<Standing> {
        self.call("gaps", self.port.standing()).await
    }

    async fn tell(&self, as_of: UnixMillis, limit: UnixMillis) -> Outcome<()> {
        self.call("tell", self.port.tell(as_of, limit)).await
    }

    async fn close_gap(&self, gap: &Gap) -> Outcome<()> {
        self.call("close_gap", self.port.close_gap(gap)).await
    }
}

#[async_trait]
impl<P: DeploymentConfig> DeploymentConfig for Faulty<P> {
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        self.call("config", self.port.config(shards)).await
    }

    async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        self.call("deployed", self.port.deployed()).await
    }

    async fn format(&self) -> Outcome<Option<Format>> {
        self.call("format", self.port.format()).await
    }

    async fn recent_format(&self) -> Outcome<Option<Format>> {
        self.call("recent_format", self.port.recent_format()).await
    }

    async fn definitions(&self) -> Outcome<Definitions> {
        self.call("definitions", self.port.definitions()).await
    }

    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        self.call("define", self.port.define(seen, to)).await
    }

    async fn ladder(&self) -> Outcome<Ladder> {
        self.call("ladder", self.port.ladder()).await
    }

    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        self.call("raise_ladder", self.port.raise_ladder(seen, to)).await
    }
}

#[async_trait]
impl<P: Runs> Runs for Faulty<P> {
    async fn put_run(&self, record: &RunRecord) -> Outcome<()> {
        self.call("put_run", self.port.put_run(record)).await
    }

    async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>> {
        self.call("run", self.port.run(run)).await
    }

    async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>> {
        self.call("runs", self.port.runs(limit)).await
    }

    async fn put_share(&self, run: AuditRun, worker: &Worker, share: &Summary, now: UnixMillis) -> Outcome<()> {
        self.call("put_share", self.port.put_share(run, worker, share, now)).await
    }

    async fn shares(&self, run: AuditRun) -> Outcome<Vec<Summary>> {
        self.call("shares", self.port.shares(run)).await
    }
}

#[async_trait]
impl<P: RecountQueue> RecountQueue for Faulty<P> {
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()> {
        self.call("enqueue", self.port.enqueue(key, reason, now)).await
    }

    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>> {
        self.call("queued", self.port.queued(after)).await
    }

    async fn dequeue(&self, queued: &Queued) -> Outcome<()> {
        self.call("dequeue", self.port.dequeue(queued)).await
    }

    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        self.call("enqueue_audit", self.port.enqueue_audit(now)).await
    }

    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        self.call("audit_queued", self.port.audit_queued()).await
    }

    async fn audit_done(&self, asked: UnixMillis) -> Outcome<()> {
        self.call("audit_done", self.port.audit_done(asked)).await
    }
}

#[async_trait]
impl<P: Claims> Claims for Faulty<P> {
    async fn claim(&self, what: &str, worker: &Worker, now: UnixMillis, stale: UnixMillis) -> Outcome<Claimed> {
        self.call("claim", self.port.claim(what, worker, now, stale)).await
    }

    async fn settle(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()> {
        self.call("settle", self.port.settle(what, worker, done)).await
    }
}

#[async_trait]
impl<P: AuditSegments> AuditSegments for Faulty<P> {
    async fn put_segment(&self, run: AuditRun, segment: &AuditSegment, now: UnixMillis) -> Outcome<()> {
        self.call("put_segment", self.port.put_segment(run, segment, now)).await
    }

    async fn segments(&self, run: AuditRun) -> Outcome<Vec<AuditSegment>> {
        self.call("segments", self.port.segments(run)).await
    }
}

#[async_trait]
impl<P: Reports> Reports for Faulty<P> {
    async fn put_report(&self, report: &Report, now: UnixMillis) -> Outcome<()> {
        self.call("put_report", self.port.put_report(report, now)).await
    }

    async fn report(&self, key: &RowKey, run: WindowRun) -> Outcome<Option<Report>> {
        self.call("report", self.port.report(key, run)).await
    }
}

#[async_trait]
impl<P: ChangeStream> ChangeStream for Faulty<P> {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        self.call("info", self.port.info()).await
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        self.call("shards", self.port.shards(label)).await
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        self.call("children", self.port.children(label, parent)).await
    }

    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault> {
        self.call("iterator", self.port.iterator(label, shard, position)).await
    }

    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault> {
        self.call("records", self.port.records(iterator, limit)).await
    }
}

#[async_trait]
impl<P: Cache> Cache for Faulty<P> {
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>> {
        self.call("get", self.port.get(counters)).await
    }

    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        self.call("update", self.port.update(values)).await
    }

    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>> {
        self.call("begin_fill", self.port.begin_fill(counter)).await
    }

    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        self.call("fill", self.port.fill(counter, token, value)).await
    }
}
