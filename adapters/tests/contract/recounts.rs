//! Runs, the queue, claims, segments, reports.

use std::time::Duration;

use tally_core::Map;
use tally_core::audit::{
    AuditRecord, AuditRun, Cause, Cost, Drift, OpenAtStart, OpenGap, Plan, RunRecord, RunScope, Summary,
};
use tally_core::ids::{MemberKey, RowKey};
use tally_core::ports::{
    AuditSegment, Claimed, Cursor, GapId, Operation, Operations, QueueReason, Queued, Recounts, Worker,
};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::window::Report;

use crate::engine::Env;

/// Far ahead of every engine's clock, so that nothing here expires meanwhile.
const NOW: UnixMillis = UnixMillis(4_000_000_000_000);

pub(crate) async fn contract(env: &Env) {
    let port = &*env.recounts;
    the_latest_runs_come_first(port).await;
    what_every_worker_of_a_run_has_found_is_kept(port).await;
    a_key_is_queued_once_for_the_first_reason(port).await;
    an_audit_asked_for_since_stays_queued(port).await;
    a_claim_lasts_until_its_heartbeat_is_missed(port).await;
    a_segment_keeps_what_was_put_last_and_is_done_for_ever(port).await;
    a_report_is_read_whole_or_not_at_all(port).await;
    an_operators_change_is_one_line_and_its_end_takes_the_place_of_its_beginning(&*env.operations).await;
}

async fn the_latest_runs_come_first(port: &dyn Recounts) {
    let state = |run: u128, began| RunRecord {
        run: run.into(),
        began: UnixMillis(began),
        ended: None,
        scope: RunScope::Audit,
        dry_run: run == 2,
        audit: Some(AuditRecord {
            plan: Plan { rows: 32, counters: 8, since: (run == 1).then_some(UnixMillis(3)) },
            open: OpenAtStart {
                began: UnixMillis(7),
                gaps: vec![OpenGap { id: GapId("trimmed/a".into()), opened: UnixMillis(5) }],
                asked: (run == 3).then_some(UnixMillis(9)),
            },
        }),
        summary: Summary::default(),
    };
    for (run, began) in [(1, 500), (3, 900), (2, 700)] {
        port.put_run(&state(run, began)).await.unwrap();
    }
    let ended = RunRecord { ended: Some(UnixMillis(990)), summary: found(7), ..state(3, 900) };
    port.put_run(&ended).await.unwrap();
    assert_eq!(port.run(3.into()).await, Ok(Some(ended.clone())));
    assert_eq!(port.run(9.into()).await, Ok(None));
    assert_eq!(port.runs(2).await, Ok(vec![ended.clone(), state(2, 700)]));
    port.put_run(&state(3, 900)).await.unwrap();
    assert_eq!(port.run(3.into()).await, Ok(Some(ended)), "its end is not taken back");
    let other = RunRecord { scope: RunScope::Queue, audit: None, ..state(4, 100) };
    port.put_run(&other).await.unwrap();
    assert_eq!(port.run(4.into()).await, Ok(Some(other)));
}

/// A summary of everything a summary can hold.
fn found(posts: u64) -> Summary {
    let mut summary = Summary { posts, cost: Cost { read_units: 3, write_units: 4 }, ..Summary::default() };
    summary.corrected(Drift { key: "p\n#0".into(), before: -3, after: 5, cause: Cause::MissingCounter });
    summary.misplaced(|| "\"u\" in \"p#3\"".into());
    summary
}

async fn what_every_worker_of_a_run_has_found_is_kept(port: &dyn Recounts) {
    let run = AuditRun::from(31);
    for (worker, posts) in [("w-2", 1), ("w-1", 2), ("w-2", 3)] {
        port.put_share(run, &Worker(worker.into()), &found(posts), NOW).await.unwrap();
    }
    port.put_share(AuditRun::from(32), &Worker("w-1".into()), &found(9), NOW).await.unwrap();
    assert_eq!(port.shares(run).await, Ok(vec![found(2), found(3)]));
    assert_eq!(port.shares(AuditRun::from(33)).await, Ok(vec![]));
}

async fn a_key_is_queued_once_for_the_first_reason(port: &dyn Recounts) {
    let key: RowKey = "queued#3#1".parse().unwrap();
    let other: RowKey = "queued#0".parse().unwrap();
    for reason in [QueueReason::Suspect, QueueReason::Asked] {
        port.enqueue(&key, reason, NOW).await.unwrap();
    }
    port.enqueue(&other, QueueReason::Negative, NOW).await.unwrap();
    let second = Queued { key: key.clone(), reason: QueueReason::Suspect, asked: 2 };
    let first = Queued { key: other.clone(), reason: QueueReason::Negative, asked: 1 };
    let queued = port.queued(None).await.unwrap();
    assert_eq!(queued.items, [first.clone(), second.clone()]);
    assert_eq!(queued.next, None);
    let behind = Cursor(other.to_string());
    assert_eq!(port.queued(Some(&behind)).await.unwrap().items.len(), 1);

    port.enqueue(&key, QueueReason::Drift, NOW).await.unwrap();
    port.dequeue(&second).await.unwrap();
    let again = Queued { asked: 3, ..second };
    assert_eq!(port.queued(None).await.unwrap().items, [first.clone(), again.clone()], "it was asked for meanwhile");
    for _ in 0..2 {
        port.dequeue(&again).await.unwrap();
    }
    assert_eq!(port.queued(None).await.unwrap().items, [first]);
}

async fn an_audit_asked_for_since_stays_queued(port: &dyn Recounts) {
    let queued = async || port.audit_queued().await.unwrap().map(|asked| asked.0);
    for (now, asked) in [(100, 100), (300, 300), (200, 301), (301, 302)] {
        port.enqueue_audit(UnixMillis(now)).await.unwrap();
        assert_eq!(queued().await, Some(asked), "every request is another, by whatever clock");
    }
    for (seen, left) in [(300, Some(302)), (9_000, Some(302)), (302, None), (302, None)] {
        port.audit_done(UnixMillis(seen)).await.unwrap();
        assert_eq!(queued().await, left, "an audit of what was queued as {seen}");
    }
}

async fn a_claim_lasts_until_its_heartbeat_is_missed(port: &dyn Recounts) {
    let (mine, other) = (Worker("w-1".into()), Worker("w-2".into()));
    let what = "segment/7";
    let claim =
        async |worker, at: UnixMillis| port.claim(what, worker, at, at.minus(Duration::from_secs(10))).await.unwrap();
    let at = |seconds| NOW.plus(Duration::from_secs(seconds));
    assert_eq!(claim(&mine, at(0)).await, Claimed::Claimed);
    assert_eq!(claim(&other, at(5)).await, Claimed::Taken);
    assert_eq!(claim(&mine, at(8)).await, Claimed::Claimed, "a heartbeat");
    assert_eq!(claim(&other, at(12)).await, Claimed::Taken);
    assert_eq!(claim(&other, at(19)).await, Claimed::Claimed);
    port.settle(what, &mine, true).await.unwrap();
    assert_eq!(claim(&other, at(20)).await, Claimed::Claimed, "one who lost it settles nothing");
    port.settle(what, &other, false).await.unwrap();
    assert_eq!(claim(&mine, at(21)).await, Claimed::Claimed, "given back");
    for done in [true, false] {
        port.settle(what, &mine, done).await.unwrap();
    }
    assert_eq!(claim(&other, at(99)).await, Claimed::Done, "done stays done");
}

async fn a_segment_keeps_what_was_put_last_and_is_done_for_ever(port: &dyn Recounts) {
    let run = AuditRun::from(11);
    let segment = |index, cursor: Option<&str>, unsettled, done| AuditSegment {
        index,
        cursor: cursor.map(|cursor| Cursor(cursor.into())),
        unsettled,
        done,
    };
    let put = async |run, segment| port.put_segment(run, &segment, NOW).await.unwrap();
    put(run, segment(10, Some("3:p#0"), 4, false)).await;
    put(run, segment(10, Some("3:p#0u"), 4, false)).await;
    put(run, segment(2, Some("x"), 1, false)).await;
    put(run, segment(2, None, 0, true)).await;
    put(run, segment(2, Some("late"), 7, false)).await;
    put(AuditRun::from(12), segment(0, None, 0, true)).await;
    assert_eq!(port.segments(run).await, Ok(vec![segment(2, None, 0, true), segment(10, Some("3:p#0u"), 4, false)]));
}

async fn a_report_is_read_whole_or_not_at_all(port: &dyn Recounts) {
    let key: RowKey = "reported#1".parse().unwrap();
    let member = |n: i64| MemberKey::new(&format!("{n:0>200}")).unwrap();
    let cell = (MemberKey::new("\u{1}cell/views/3").unwrap(), Weight::new(-Weight::MAX).unwrap());
    for (run, members) in [(21u128, 0), (22, 1), (23, 4000)] {
        let weight = |n: i64| Weight::new(if n % 5 == 4 { n - 2000 } else { n % 2 }).unwrap();
        let mut touched: Map<MemberKey, Weight> = (0..members).map(|n| (member(n), weight(n))).collect();
        touched.extend((members > 1).then(|| cell.clone()));
        let report = Report { key: key.clone(), run: run.into(), touched };
        assert_eq!(port.report(&key, run.into()).await, Ok(None));
        for _ in 0..2 {
            port.put_report(&report, NOW).await.unwrap();
        }
        assert_eq!(port.report(&key, run.into()).await, Ok(Some(report)), "{members} members");
        assert_eq!(port.report(&"reported#2".parse().unwrap(), run.into()).await, Ok(None), "of another key");
    }
}

async fn an_operators_change_is_one_line_and_its_end_takes_the_place_of_its_beginning(port: &dyn Operations) {
    let began = |at: u64, token| Operation {
        at: UnixMillis(at),
        token,
        by: "anna".to_owned(),
        why: "the topic was re-created".to_owned(),
        command: "fence reset".to_owned(),
        plan: "likes/0: from 3 to 1".to_owned(),
        ended: None,
    };
    for line in [began(900, 7), began(1_000, u64::MAX), began(900, 8)] {
        port.put_operation(&line).await.unwrap();
    }
    let ended = Operation { ended: Some("done".to_owned()), ..began(900, 8) };
    for _ in 0..2 {
        port.put_operation(&ended).await.unwrap();
    }
    let newest = vec![began(1_000, u64::MAX), ended, began(900, 7)];
    assert_eq!(port.operations(9).await, Ok(newest.clone()));
    assert_eq!(port.operations(2).await, Ok(newest[..2].to_vec()));
}
