//! Runs, the queue, claims, segments, reports.

use std::time::Duration;

use tally_core::Map;
use tally_core::ids::{RowKey, UserId};
use tally_core::ports::{AuditSegment, Claimed, Cursor, QueueReason, Recounts, RunState, Worker};
use tally_core::recount::{Report, RunId};
use tally_core::time::UnixMillis;

use crate::engine::Env;

/// Far ahead of every engine's clock, so that nothing here expires meanwhile.
const NOW: UnixMillis = UnixMillis(4_000_000_000_000);

pub(crate) async fn contract(env: &Env) {
    let port = &*env.recounts;
    the_latest_runs_come_first(port).await;
    a_key_is_queued_once_for_the_first_reason(port).await;
    an_audit_asked_for_since_stays_queued(port).await;
    a_claim_lasts_until_its_heartbeat_is_missed(port).await;
    a_segment_keeps_what_was_put_last(port).await;
    a_report_is_read_whole_or_not_at_all(port).await;
}

async fn the_latest_runs_come_first(port: &dyn Recounts) {
    let state = |run: u128, began| RunState {
        run: run.into(),
        began: UnixMillis(began),
        ended: None,
        scope: "everything".into(),
        summary: String::new(),
    };
    for (run, began) in [(1, 500), (2, 900), (3, 700)] {
        port.put_run(&state(run, began)).await.unwrap();
    }
    let ended = RunState { ended: Some(UnixMillis(990)), summary: r#"{"posts":7}"#.into(), ..state(2, 900) };
    port.put_run(&ended).await.unwrap();
    assert_eq!(port.run(2.into()).await, Ok(Some(ended.clone())));
    assert_eq!(port.run(9.into()).await, Ok(None));
    assert_eq!(port.runs(2).await, Ok(vec![ended, state(3, 700)]));
}

async fn a_key_is_queued_once_for_the_first_reason(port: &dyn Recounts) {
    let key: RowKey = "queued#3#1".parse().unwrap();
    let other: RowKey = "queued#0".parse().unwrap();
    for reason in [QueueReason::Suspect, QueueReason::Asked] {
        port.enqueue(&key, reason, NOW).await.unwrap();
    }
    port.enqueue(&other, QueueReason::Negative, NOW).await.unwrap();
    let queued = port.queued(None).await.unwrap();
    assert_eq!(queued.items, [(other.clone(), QueueReason::Negative), (key.clone(), QueueReason::Suspect)]);
    assert_eq!(queued.next, None);
    let behind = Cursor(other.to_string());
    assert_eq!(port.queued(Some(&behind)).await.unwrap().items.len(), 1);
    for _ in 0..2 {
        port.dequeue(&key).await.unwrap();
    }
    assert_eq!(port.queued(None).await.unwrap().items, [(other, QueueReason::Negative)]);
}

async fn an_audit_asked_for_since_stays_queued(port: &dyn Recounts) {
    for asked in [100, 300, 200] {
        port.enqueue_audit(UnixMillis(asked)).await.unwrap();
    }
    for (began, left) in [(250, Some(300)), (300, Some(300)), (301, None), (400, None)] {
        port.audit_done(UnixMillis(began)).await.unwrap();
        assert_eq!(port.audit_queued().await, Ok(left.map(UnixMillis)), "an audit that began at {began}");
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
    assert_eq!(claim(&other, at(20)).await, Claimed::Claimed, "whoever lost it settles nothing");
    port.settle(what, &other, false).await.unwrap();
    assert_eq!(claim(&mine, at(21)).await, Claimed::Claimed, "given back");
    for done in [true, false] {
        port.settle(what, &mine, done).await.unwrap();
    }
    assert_eq!(claim(&other, at(99)).await, Claimed::Done, "done stays done");
}

async fn a_segment_keeps_what_was_put_last(port: &dyn Recounts) {
    let run = RunId::from(11);
    let segment = |index, cursor: Option<&str>, unsettled, done| AuditSegment {
        index,
        cursor: cursor.map(|cursor| Cursor(cursor.into())),
        unsettled,
        done,
    };
    port.put_segment(run, &segment(10, Some("3:p#0u"), 4, false)).await.unwrap();
    port.put_segment(run, &segment(2, Some("x"), 1, false)).await.unwrap();
    port.put_segment(run, &segment(2, None, 0, true)).await.unwrap();
    port.put_segment(RunId::from(12), &segment(0, None, 0, true)).await.unwrap();
    assert_eq!(port.segments(run).await, Ok(vec![segment(2, None, 0, true), segment(10, Some("3:p#0u"), 4, false)]));
}

async fn a_report_is_read_whole_or_not_at_all(port: &dyn Recounts) {
    let key: RowKey = "reported#1".parse().unwrap();
    let user = |n: usize| UserId::new(&format!("{n:0>200}")).unwrap();
    for (run, users) in [(21u128, 0), (22, 1), (23, 4000)] {
        let touched: Map<UserId, bool> = (0..users).map(|n| (user(n), n % 3 == 0)).collect();
        let report = Report { key: key.clone(), run: run.into(), touched };
        assert_eq!(port.report(&key, run.into()).await, Ok(None));
        for _ in 0..2 {
            port.put_report(&report, NOW).await.unwrap();
        }
        assert_eq!(port.report(&key, run.into()).await, Ok(Some(report)), "{users} users");
        assert_eq!(port.report(&"reported#2".parse().unwrap(), run.into()).await, Ok(None), "of another key");
    }
}
