//! What is written into the fixture's deployment: something of every kind, through the ports.

use tally_adapters::dynamodb::{self, Connection};
use tally_core::audit::{
    AuditRecord, AuditRun, Cause, Cost, Drift, OpenAtStart, OpenGap, Plan, RunRecord, RunScope, Summary,
};
use tally_core::batch::Change;
use tally_core::counter::{Feeder, Touch, Update};
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, MemberKey, Ordinal, RowKey, Shard, ShardCount, StreamLabel, StreamShardId, UserId};
use tally_core::lineage::Loss;
use tally_core::ports::{
    Applied, AuditSegment, AuditSegments, ChangeStream, Claimed, Claims, Counts, Cursor, DeploymentConfig, FencedRows,
    GapId, Gaps, Judged, LeaseTaken, Leases, LedgerEntry, MarkerPut, Markers, Mended, Positions, QueueReason,
    RecountQueue, Reports, Runs, StreamRegistry, Worker,
};
use tally_core::time::UnixMillis;
use tally_core::watermark::Prune;
use tally_core::weight::Weight;
use tally_core::window::{Form, Marker, Report, Verdict, WindowRun};

/// The ports over one deployment.
pub(crate) struct Ports {
    pub(crate) likes: dynamodb::Likes,
    pub(crate) rows: dynamodb::Rows,
    pub(crate) markers: dynamodb::Markers,
    pub(crate) counts: dynamodb::Counts,
    pub(crate) checkpoints: dynamodb::Checkpoints,
    pub(crate) recounts: dynamodb::Recounts,
    pub(crate) stream: dynamodb::Streams,
}

impl Ports {
    pub(crate) async fn over(connection: &Connection) -> Self {
        dynamodb::ensure_tables(connection).await.unwrap();
        Self {
            likes: dynamodb::Likes::new(connection, ShardCount::new(4).unwrap()),
            rows: dynamodb::Rows::new(connection),
            markers: dynamodb::Markers::new(connection),
            counts: dynamodb::Counts::new(connection),
            checkpoints: dynamodb::Checkpoints::new(connection),
            recounts: dynamodb::Recounts::new(connection),
            stream: dynamodb::Streams::new(connection),
        }
    }
}

pub(crate) const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

pub(crate) fn likes(post: &str) -> CounterId {
    CounterId::likes(post.parse().unwrap())
}

pub(crate) fn user(id: &str) -> UserId {
    id.parse().unwrap()
}

pub(crate) fn key(text: &str) -> RowKey {
    text.parse().unwrap()
}

pub(crate) fn partition() -> Partition {
    Partition { topic: "likes".into(), index: 3 }
}

pub(crate) fn fence(offset: u64) -> Fence {
    Fence::new(Offset(offset), 2, TopicId("t-1".into()))
}

pub(crate) fn label() -> StreamLabel {
    "2023-11-14T22:13:20.000".into()
}

pub(crate) fn shard(name: &str) -> StreamShardId {
    name.into()
}

pub(crate) fn worker() -> Worker {
    Worker("w-1".into())
}

/// Rows whose ids look like keys, and a marker beside them.
pub(crate) async fn rows(ports: &Ports) {
    ports.likes.create_fence(&partition(), &fence(5)).await.unwrap();
    let rows = [("p", "u-1"), ("p", "u-2"), ("p#3", "日本"), ("p#views.0", ":#."), ("p", "gone")];
    let ids: Vec<_> = rows.iter().map(|(post, member)| (likes(post), user(member))).collect();
    let change = |(counter, user), action, at| Change::like(counter, user, action, UnixMillis(at));
    let liked: Vec<_> = ids.iter().map(|(counter, user)| change((counter, user), Action::Like, 77)).collect();
    let advance = Advance { from: fence(5), to: Offset(10) };
    assert_eq!(ports.likes.commit(&partition(), &advance, &liked).await, Commit::Done);
    let gone = [change((&ids[4].0, &ids[4].1), Action::Unlike, 78)];
    let advance = Advance { from: advance.reached(), to: Offset(12) };
    assert_eq!(ports.likes.commit(&partition(), &advance, &gone).await, Commit::Done);
    let (opening, closing) = (Marker::low(7.into()), Marker::high(7.into()));
    let marked = key("p#1");
    assert_eq!(ports.markers.put_marker(&marked, opening, None).await, Ok(MarkerPut::Put));
    assert_eq!(ports.markers.put_marker(&marked, closing, Some(opening)).await, Ok(MarkerPut::Put));
}

fn touch(k: u16, delta: i64) -> Touch {
    Touch { shard: Shard::new(k).unwrap(), delta, feeder: Feeder::Usual, window: None, doubt: false }
}

fn update(g: u64, first: u64, last: u64, touched: Vec<Touch>) -> Update {
    let (shard, first, last) = (Ordinal(g), first.into(), last.into());
    Update { shard, first, last, at: NOW, touched, ancestors: vec![], closed_through: None, prune: None, guard: None }
}

async fn apply(ports: &Ports, counter: &CounterId, update: &Update) {
    assert!(matches!(ports.counts.apply(counter, update).await, Ok(Applied::Taken(_))), "{update:?}");
}

pub(crate) fn line(counter: &CounterId, run: WindowRun, before: i64, after: i64) -> LedgerEntry {
    let (shard, by, why) = (Some(Shard::new(3).unwrap()), "w-1".into(), "drift".into());
    LedgerEntry { counter: counter.clone(), shard, at: NOW, run, by, before, after, why }
}

/// Counters with watermarks, a floor, a window's token and a suspicion, and lines of the ledger.
pub(crate) async fn counters(ports: &Ports) {
    let p = likes("p");
    apply(ports, &p, &update(1, 1, 5, vec![touch(0, 3), touch(3, -2)])).await;
    let contest = Touch { feeder: Feeder::Contest { from: Ordinal(1) }, ..touch(0, 1) };
    apply(ports, &p, &update(4, 2, 9, vec![contest])).await;
    let prune = Some(Prune { floor: Ordinal(2), finished: vec![Ordinal(1)] });
    apply(ports, &p, &Update { closed_through: Some(Ordinal(2)), prune, ..update(4, 10, 10, vec![touch(2, 1)]) }).await;
    let window = |run: u128| Touch { window: Some(WindowRun::from(run)), ..touch(3, 0) };
    apply(ports, &p, &Update { closed_through: Some(Ordinal(2)), ..update(4, 11, 11, vec![window(8)]) }).await;

    let judged = likes("p#3");
    apply(ports, &judged, &update(1, 1, 1, vec![touch(3, 7)])).await;
    for (at, run, correction) in [(2, 9, -9i64), (3, 10, 0)] {
        apply(ports, &judged, &update(1, at, at, vec![window(run)])).await;
        let key = RowKey { counter: judged.clone(), shard: Shard::new(3).unwrap() };
        let verdict = Verdict { key, run: run.into(), correction, form: Form::Plain };
        let entry = line(&judged, run.into(), 7, 7 + correction);
        assert_eq!(ports.counts.judge(&verdict, &entry).await, Ok(Judged::Stands));
    }
    let mended = LedgerEntry { shard: None, why: "total".into(), ..line(&judged, 11.into(), -2, 0) };
    assert_eq!(ports.counts.mend_total(&judged, 5, 0, &mended).await, Ok(Mended::Mended));
    ports.counts.suspect(&key("doubted#2"), NOW).await.unwrap();
}

/// Stream shards with and without a parent, a lease, gaps, and the configuration.
pub(crate) async fn checkpoints(ports: &Ports) {
    let port = &ports.checkpoints;
    assert_eq!(port.config(ShardCount::new(4).ok()).await, Ok(ShardCount::new(4).unwrap()));
    let (root, child) = (shard("shardId-root"), shard("shardId-child"));
    assert_eq!(port.number(&label(), &root, None, NOW).await, Ok(Ordinal(1)));
    assert_eq!(port.number(&label(), &child, Some(&root), NOW).await, Ok(Ordinal(2)));
    port.advance(&label(), &root, 900.into(), NOW.plus(std::time::Duration::from_secs(1))).await.unwrap();
    port.close(&label(), &root, NOW).await.unwrap();
    port.raise_floor(&label(), Ordinal(1)).await.unwrap();
    let taken = port.lease(&label(), &child, &worker(), None).await;
    assert!(matches!(taken, Ok(LeaseTaken::Taken(_))), "{taken:?}");
    let later = "2023-11-15T22:13:20.000".into();
    assert_eq!(port.number(&later, &root, None, NOW).await, Ok(Ordinal(1_003)));
    for loss in [Loss::Trimmed(child), Loss::Unfollowed(label()), Loss::Refused(key("p#1"))] {
        port.open_gap(&loss, NOW).await.unwrap();
    }
}

/// An audit that has ended, with something in every field.
pub(crate) fn run() -> RunRecord {
    let gap = |id: &str, opened| OpenGap { id: GapId(id.into()), opened: UnixMillis(opened) };
    let open = OpenAtStart {
        began: NOW,
        gaps: vec![gap("trimmed/shardId-1", NOW.0 - 1), gap("refused/counters", 5)],
        asked: Some(UnixMillis(NOW.0 - 2)),
    };
    RunRecord {
        run: AuditRun::beginning(NOW, 5),
        began: NOW,
        ended: Some(UnixMillis(NOW.0 + 9)),
        scope: RunScope::Audit,
        dry_run: false,
        audit: Some(AuditRecord { plan: Plan { rows: 32, counters: 8, since: None }, open }),
        summary: found(3),
    }
}

pub(crate) fn found(rows: u64) -> Summary {
    let mut summary = Summary { rows, cost: Cost { read_units: 12, write_units: 30 }, ..Summary::default() };
    summary.corrected(Drift { key: "p#1#4".into(), before: 3, after: 5, cause: Cause::MissingCounter });
    summary.misplaced(|| r#""u" in "p#3""#.into());
    summary
}

pub(crate) fn segment() -> AuditSegment {
    AuditSegment { index: 2, cursor: Some(Cursor("3:p#0u".into())), unsettled: 4, done: false }
}

/// Likes and unlikes, as every report was before rows had weights.
pub(crate) fn report() -> Report {
    let touched = [("u-1", Weight::ONE), ("u-2", Weight::ABSENT), ("日本", Weight::ONE), (":#.", Weight::ABSENT)];
    let touched = touched.map(|(member, weight)| (MemberKey::new(member).unwrap(), weight));
    Report { key: key("p#1"), run: 8.into(), touched: touched.into_iter().collect() }
}

/// A run with a share and a segment, what is queued, a claim, and reports.
pub(crate) async fn recounts(ports: &Ports) {
    let (port, run, at) = (&ports.recounts, run(), NOW);
    port.put_run(&run).await.unwrap();
    port.put_share(run.run, &worker(), &found(2), at).await.unwrap();
    port.put_segment(run.run, &segment(), at).await.unwrap();
    for (queued, reason) in [("p#1", QueueReason::Negative), ("p#1", QueueReason::Asked), ("p#3#2", QueueReason::Drift)]
    {
        port.enqueue(&key(queued), reason, at).await.unwrap();
    }
    assert_eq!(port.claim("repair/p#1", &worker(), at, UnixMillis(0)).await, Ok(Claimed::Claimed));
    port.put_report(&report(), at).await.unwrap();
    port.put_report(&Report { run: 9.into(), touched: [].into_iter().collect(), ..report() }, at).await.unwrap();
}

/// Everything.
pub(crate) async fn write(ports: &Ports) {
    rows(ports).await;
    counters(ports).await;
    checkpoints(ports).await;
    recounts(ports).await;
    ports.stream.info().await.unwrap();
}
