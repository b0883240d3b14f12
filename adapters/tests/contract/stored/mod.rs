//! Stored forms: what a deployment of likes without a table prefix has in its tables, its cache and its stream, held in
//! files as the first version wrote it. The code of today writes the same bytes, and reads them.

mod counters;
mod raw;
mod script;

mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use tally_adapters::dynamodb::{Connection, Settings};
    use tally_core::Map;
    use tally_core::format::Format;
    use tally_core::ids::{CachePrefix, CounterId, Ordinal, Shard, ShardCount};
    use tally_core::ports::{
        AuditSegments as _, ChangeStream as _, Counts as _, DeploymentConfig as _, FencedRows as _, Gaps as _,
        Ledger as _, Markers as _, Position, Positions as _, QueueReason, RecountQueue as _, Reports as _, Rows as _,
        Runs as _, Segment, StreamRegistry as _,
    };
    use tally_core::ports::{Lease, LedgerEntry, Registry};
    use tally_core::served::Served;
    use tally_core::tally::{Image, RawRecord, Record, RecordKind, read};
    use tally_core::time::UnixMillis;
    use tally_core::weight::Weight;
    use tally_core::window::Marker;
    use tally_emulator::{Config, Emulator};

    use super::raw;
    use super::script::{self, NOW, Ports, fence, key, label, likes, line, partition, shard, user, worker};

    const ITEMS: &str = include_str!("items.txt");
    const CACHED: &str = include_str!("cached.txt");

    pub(crate) async fn deployment() -> (Emulator, Ports) {
        let epoch = Some(UNIX_EPOCH + Duration::from_millis(NOW.0));
        let emulator = Emulator::new(Config { epoch, ..Config::default() });
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), NOW);
        let ports = Ports::over(&connection).await;
        (emulator, ports)
    }

    async fn stored() -> (Emulator, Ports) {
        let (emulator, ports) = deployment().await;
        raw::put(&emulator, &ITEMS.lines().collect::<Vec<_>>()).await;
        (emulator, ports)
    }

    #[tokio::test]
    async fn the_items_of_a_deployment_of_likes_are_written_as_they_always_were() {
        let (emulator, ports) = deployment().await;
        script::write(&ports).await;
        let written = raw::lines(&emulator).await;
        for (written, held) in written.iter().zip(ITEMS.lines()) {
            // Two changes since, none of a form: a mark of doubt counts as a switch, and the registry of a stream takes a
            // number from the one before it. Items without them are read all the same.
            let written = written.replace(r#""version":{"N":"1"},"x2":{"N":"1"}}"#, r#""version":{"N":"1"}}"#);
            let written = written.replace(r#"13:20.000"},"next":{"N":"4"}}"#, r#"13:20.000"},"next":{"N":"3"}}"#);
            assert_eq!(written, held);
        }
        assert_eq!(written.len(), ITEMS.lines().count());
    }

    #[tokio::test]
    async fn rows_markers_and_fences_are_read_as_they_were_written() {
        let (_, ports) = stored().await;
        assert_eq!(ports.likes.fence(&partition()).await, Ok(Some(fence(12))));
        let shards = ShardCount::new(4).unwrap();
        for (post, member) in [("p", "u-1"), ("p", "u-2"), ("p#3", "日本"), ("p#views.0", ":#.")] {
            let key = tally_core::ids::RowKey::of(&likes(post), member, shards);
            let like = ports.rows.like(&key, &user(member)).await.unwrap().unwrap();
            assert_eq!((like.user, like.liked_at), (user(member), UnixMillis(77)), "{post}");
            let weights = ports.rows.weights(&key, None).await.unwrap().items;
            assert!(weights.contains(&((&user(member)).into(), Some(Weight::ONE))), "{post}: {weights:?}");
        }
        assert_eq!(ports.markers.marker(&key("p#1")).await, Ok(Some(Marker::high(7.into()))));
    }

    #[tokio::test]
    async fn changes_of_rows_without_a_weight_count_one_each() {
        let (_, ports) = stored().await;
        let mut deltas: Map<CounterId, i64> = Map::default();
        let mut markers = 0;
        for record in streamed(&ports).await {
            match &record.kind {
                RecordKind::Row { key, .. } => *deltas.entry(key.counter.clone()).or_default() += record.delta(),
                RecordKind::Marker { .. } => markers += 1,
                other => panic!("{other:?}"),
            }
        }
        let counted = ["p", "p#3", "p#views.0"].map(|post| deltas.get(&likes(post)).copied());
        assert_eq!((counted, deltas.len(), markers), ([Some(2), Some(1), Some(1)], 3, 1));
        let gone = RawRecord { before: Some(Image::default()), ..RawRecord::default() };
        let gone = RawRecord { sequence: "1".into(), pk: Some("p#1".into()), sort: Some("u".into()), ..gone };
        assert_eq!(read(&gone).unwrap().delta(), -1);
    }

    #[tokio::test]
    async fn rows_with_a_weight_are_read_with_it_and_listed_to_nobody_unless_they_are_members() {
        let (emulator, ports) = deployment().await;
        let row = |sort: &str, n: &str| format!(r#"likes {{"pk":{{"S":"p#+views.3"}},"user_id":{{"S":"{sort}"}}{n}}}"#);
        let rows = [
            row("\\u0001cell/views/3", r#","n":{"N":"25"}"#),
            row("\\u0001cell/views/7", r#","n":{"N":"-1000000000000000000"}"#),
            row("\\u0001cell/views/11", ""),
            row("\\u0001homes", r#","n":{"N":"5"}"#),
            row("member", r#","n":{"N":"0"}"#),
            row("unreadable", r#","n":{"S":"25"}"#),
            row("too much", r#","n":{"N":"1000000000000000001"}"#),
        ];
        raw::put(&emulator, &rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let key = key("p#+views.3");
        let weights = ports.rows.weights(&key, None).await.unwrap().items;
        let weights: Vec<_> =
            weights.iter().filter_map(|(member, weight)| Some((member.as_str(), weight.as_ref()?.get()))).collect();
        let expected = [("\u{1}cell/views/3", 25), ("\u{1}cell/views/7", -Weight::MAX), ("member", 0)];
        assert_eq!(weights, expected);
        let users = ports.rows.users(&key, None).await.unwrap().items;
        assert_eq!(users.iter().map(|user| user.as_str()).collect::<Vec<_>>(), ["member", "too much", "unreadable"]);
        assert_eq!(ports.rows.likes(&key, None, None).await.unwrap().items, [], "none is a like");
        let scanned = ports.rows.scan(Segment { index: 0, of: 1 }, None).await.unwrap().items;
        let scanned: Vec<_> = scanned.iter().filter_map(|row| Some((row.sort.as_str(), row.weight()?.get()))).collect();
        assert_eq!(scanned, expected);
        let records = streamed(&ports).await;
        let deltas = records.iter().map(Record::delta).sum::<i64>();
        let foreign = records.iter().filter(|record| matches!(record.kind, RecordKind::Unreadable { .. }));
        assert_eq!((deltas, foreign.count(), records.len()), (25 - Weight::MAX, 3, 7));
    }

    /// Every change record, understood.
    async fn streamed(ports: &Ports) -> Vec<Record> {
        let stream = ports.stream.info().await.unwrap().label;
        let mut records = Vec::new();
        for listed in ports.stream.shards(&stream).await.unwrap() {
            let mut at = Some(ports.stream.iterator(&stream, &listed.id, Position::Oldest).await.unwrap());
            while let Some(iterator) = at {
                let page = ports.stream.records(&iterator, 100).await.unwrap();
                records.extend(page.records.iter().filter_map(read));
                at = page.next.filter(|_| !page.records.is_empty());
            }
        }
        records
    }

    #[tokio::test]
    async fn counters_and_ledger_are_read_as_they_were_written() {
        let (_, ports) = stored().await;
        let counter = ports.counts.counter(&likes("p")).await.unwrap().unwrap();
        let tally = |k| &counter.shards[&Shard::new(k).unwrap()];
        assert_eq!((counter.likes, counter.sum(), counter.version), (3, Ok(3), 4));
        assert_eq!((tally(0).rows, tally(0).switches, tally(0).suspect), (4, 1, true));
        assert_eq!(
            (tally(3).rows, tally(3).window.map(|window| (window.run, window.rows))),
            (-2, Some((8.into(), -2)))
        );
        assert_eq!(counter.watermarks.floor(), Some(Ordinal(2)));
        let judged = likes("p#3");
        let total = LedgerEntry { shard: None, why: "total".into(), ..line(&judged, 11.into(), -2, 0) };
        let expected = [total, line(&judged, 10.into(), 7, 7), line(&judged, 9.into(), 7, -2)];
        assert_eq!(ports.recounts.ledger(&judged, 9).await, Ok(expected.to_vec()));
        assert!(!ports.counts.counter(&likes("doubted")).await.unwrap().unwrap().is_sound());
    }

    #[tokio::test]
    async fn checkpoints_are_read_as_they_were_written() {
        let (_, ports) = stored().await;
        let port = &ports.checkpoints;
        assert_eq!(port.deployed().await, Ok(ShardCount::new(4).ok()));
        assert_eq!(port.format().await, Ok(Some(Format::written())));
        let registry = Registry { next: Ordinal(3), floor: Some(Ordinal(1)) };
        assert_eq!(port.registry(&label()).await, Ok(Some(registry)));
        let [root, child] = &port.shards(&label()).await.unwrap()[..] else { panic!("two shards are stored") };
        let checkpoint = &root.checkpoint;
        assert_eq!(
            (&checkpoint.id, checkpoint.sequence, checkpoint.closed),
            (&shard("shardId-root"), Some(900.into()), true)
        );
        assert_eq!((&child.checkpoint.parent, child.checkpoint.ordinal), (&Some(shard("shardId-root")), Ordinal(2)));
        assert_eq!(child.lease, Some(Lease { holder: worker(), beat: 1 }));
        let gaps = port.gaps().await.unwrap();
        let mut ids: Vec<_> = gaps.iter().map(|gap| gap.id.0.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["refused/counters", "trimmed/shardId-child", "unfollowed/2023-11-14T22:13:20.000"]);
    }

    #[tokio::test]
    async fn opening_a_deployment_rewrites_nothing_in_whatever_format_it_is() {
        let (emulator, ports) = stored().await;
        for (stated, format) in [
            (r#","format":{"S":"2-part1"}"#, Format::written()),
            ("", Format::FIRST),
            (r#","format":{"N":"7"}"#, Format::Number(7)),
            (r#","format":{"N":"-1"}"#, Format::Other),
            (r#","format":{"S":"1"}"#, Format::Named("1".to_owned())),
            (r#","format":{"BOOL":true}"#, Format::Other),
        ] {
            let config = format!(r#"checkpoints {{"id":{{"S":"config"}},"shards":{{"N":"4"}}{stated}}}"#);
            raw::put(&emulator, &[&config]).await;
            let before = raw::lines(&emulator).await;
            assert_eq!(ports.checkpoints.config(None).await, Ok(ShardCount::new(4).unwrap()));
            assert_eq!(raw::lines(&emulator).await, before);
            assert_eq!(ports.checkpoints.format().await, Ok(Some(format)), "{stated}");
        }
    }

    #[tokio::test]
    async fn runs_queue_and_reports_are_read_as_they_were_written() {
        let (_, ports) = stored().await;
        let (port, run) = (&ports.recounts, script::run());
        assert_eq!(port.run(run.run).await, Ok(Some(run.clone())));
        assert_eq!(port.shares(run.run).await, Ok(vec![script::found(2)]));
        assert_eq!(port.segments(run.run).await, Ok(vec![script::segment()]));
        let queued = port.queued(None).await.unwrap().items;
        let queued: Vec<_> = queued.iter().map(|queued| (queued.key.to_string(), queued.reason)).collect();
        assert_eq!(queued, [("p#1".to_owned(), QueueReason::Negative), ("p#3#2".to_owned(), QueueReason::Drift)]);
        let report = script::report();
        assert_eq!(port.report(&report.key, report.run).await, Ok(Some(report)));
    }

    #[test]
    fn cached_counts_are_written_and_read_as_they_always_were() {
        let served = |likes, version, exact, as_of| Served { likes, version, exact, as_of: UnixMillis(as_of) };
        let values =
            [("p", served(42, 7, true, NOW.0)), ("p#3", served(-3, 1, false, 0)), ("日本:", served(0, 0, true, 99))];
        let prefix = CachePrefix::of_tables("");
        let written: Vec<_> =
            values.iter().map(|(post, served)| format!("{} {served}", prefix.key(&likes(post)))).collect();
        assert_eq!(written, CACHED.lines().collect::<Vec<_>>());
        for (line, (_, served)) in CACHED.lines().zip(values) {
            assert_eq!(line.split_once(' ').unwrap().1.parse(), Ok(served));
        }
    }
}
